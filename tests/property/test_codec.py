"""What is written comes back as the same value, whatever the server makes of it in between."""

import copy
import json
from typing import Any

from hypothesis import given, strategies as st

from api.resource.codec import NodeOwner, decode_stored, encode_slice
from api.resource.types import Device, Pool, Slice, Taint
from driver.kube.versions import PREFERRED
from tests.property.server import Server, canonical
from tests.property.strategies import DEVICES, DRIVER, NODE, POOL, SLICES, TAINTS

OWNER = NodeOwner(name=NODE, uid="node-a")
LATER = "2026-12-31T23:59:59Z"


def sent(wanted: Slice, version: str) -> dict[str, Any]:
    pool = Pool(driver=DRIVER, node=NODE, name=POOL, slices=(wanted,))
    return encode_slice(wanted, pool=pool, generation=7, owner=OWNER, version=version)


def kept(wanted: Slice, version: str) -> dict[str, Any]:
    server = Server(version)
    server.put(sent(wanted, version))
    read: dict[str, Any] = json.loads(json.dumps(server.objects[wanted.name], sort_keys=True))
    return read


@given(SLICES, st.sampled_from(PREFERRED))
def test_a_slice_survives_the_server_in_every_version(wanted, version):
    stored = decode_stored(kept(wanted, version))
    assert stored.content == wanted
    assert (stored.generation, stored.count, stored.owner) == (7, 1, OWNER)


@given(SLICES)
def test_the_versions_differ_in_nothing_but_their_name_and_the_wrapper_of_a_device(wanted):
    v1, v1beta2, v1beta1 = (sent(wanted, version)["spec"] for version in PREFERRED)
    for device in v1beta1.get("devices", ()):
        assert device.keys() == {"name", "basic"}
        device.update(device.pop("basic"))
    assert v1 == v1beta2 == v1beta1


@given(SLICES, st.sampled_from(PREFERRED), st.data())
def test_one_unknown_field_anywhere_makes_the_content_unlike_all_that_could_be_wanted(
    wanted, version, data
):
    """Wherever the API has an object of fixed fields, a later version may add one."""
    obj = kept(wanted, version)
    data.draw(st.sampled_from(list(_structs(obj["spec"]))))["later"] = True
    assert decode_stored(obj).content is None


def _structs(spec: dict[str, Any]) -> Any:
    yield from (spec, spec["pool"])
    for counters in spec.get("sharedCounters", ()):
        yield counters
        yield from counters["counters"].values()
    for device in spec.get("devices", ()):
        body = device.get("basic", device)
        yield from (device, body)
        yield from body.get("attributes", {}).values()
        yield from body.get("capacity", {}).values()
        yield from body.get("taints", ())
        for consumed in body.get("consumesCounters", ()):
            yield consumed
            yield from consumed["counters"].values()


@given(DEVICES, st.lists(TAINTS, max_size=3, unique=True).map(tuple), st.sampled_from(PREFERRED))
def test_a_taint_keeps_its_time_over_rewrites_and_a_new_one_gets_the_time_of_its_write(
    device, taints, version
):
    before = decode_stored(kept(Slice(name="s", devices=(device,)), version))
    tainted = Device(name=device.name, taints=taints)
    wanted = Slice(name="s", devices=(tainted,))
    pool = Pool(driver=DRIVER, node=NODE, name=POOL, slices=(wanted,))
    obj = encode_slice(wanted, pool=pool, generation=8, owner=OWNER, version=version, over=before)
    after = canonical(obj, LATER)
    after["metadata"] |= {"uid": "u", "resourceVersion": "9"}
    times = decode_stored(after).taint_times
    old: dict[tuple[str, Taint], str] = dict(before.taint_times)
    assert times == {(device.name, t): old.get((device.name, t), LATER) for t in taints}


@given(SLICES, st.sampled_from(PREFERRED))
def test_reading_changes_nothing_of_what_was_read(wanted, version):
    obj = kept(wanted, version)
    copied = copy.deepcopy(obj)
    decode_stored(obj)
    assert obj == copied
