"""The real plugin process over restarts, reboots and losses: nothing forgotten, nothing written."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hack.fakeapi.requests import Request
from hack.simnvml import driverroot
from hack.testbed import DRIVER, Testbed

Obj = dict[str, Any]

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_gives_the_same_answer_and_writes_nothing(bed: Testbed, number: int) -> None:
    bed.start_plugin()
    claim = bed.claim("a")
    first = bed.kubelet.prepare(DRIVER, [claim])
    bed.stop_plugin(number)
    bed.api.requests.clear()
    bed.start_plugin()
    bed.api.requests.wait_for("list", "resourceslices")
    assert bed.kubelet.prepare(DRIVER, [claim]) == first
    assert bed.api.requests.writes() == []


def test_a_reboot_brings_the_same_cdi_names_back(bed: Testbed) -> None:
    bed.start_plugin()
    claim = bed.claim("a")
    first = bed.kubelet.prepare(DRIVER, [claim])
    (spec,) = bed.cdi.iterdir()
    content = spec.read_bytes()
    bed.stop_plugin(signal.SIGKILL)

    bed.machine.reboot()
    driverroot.render(bed.machine, bed.root, nodes=True)
    shutil.rmtree(bed.cdi)
    bed.start_plugin()

    assert bed.kubelet.prepare(DRIVER, [claim]) == first
    assert spec.read_bytes() == content


def test_slices_that_the_kubelet_deletes_at_its_start_come_back(bed: Testbed) -> None:
    bed.start_plugin()
    before = contents(bed)
    bed.api.requests.clear()
    bed.api.cluster.delete_all("resourceslices", fields="spec.nodeName=node-1")
    bed.api.requests.wait(lambda _: bed.complete())
    assert contents(bed) == before


def test_slices_of_a_node_that_was_made_anew_change_their_owner(bed: Testbed) -> None:
    bed.start_plugin()
    bed.api.cluster.delete("nodes", "node-1")
    node = bed.api.cluster.create("nodes", {"metadata": {"name": "node-1"}})
    bed.api.cluster.delete_all("resourceslices")  # what the garbage collector does
    bed.api.requests.wait(lambda _: bed.complete())
    owners = {s["metadata"]["ownerReferences"][0]["uid"] for s in bed.slices()}
    assert owners == {node["metadata"]["uid"]}


def test_a_damaged_ledger_entry_is_set_aside_and_the_others_stay(bed: Testbed) -> None:
    bed.start_plugin()
    one, two = bed.claim("one"), bed.claim("two")
    answers = bed.kubelet.prepare(DRIVER, [one, two])
    bed.stop_plugin()
    (bed.ledger / f"{one.uid}.json").write_text("{")
    bed.start_plugin()
    (aside,) = (bed.ledger / "damaged").iterdir()
    assert aside.name.startswith(one.uid)
    assert bed.kubelet.prepare(DRIVER, [two])[two.uid] == answers[two.uid]
    assert bed.kubelet.prepare(DRIVER, [one])[one.uid] == answers[one.uid]


def lose_while_held(bed: Testbed, profile: str) -> tuple[str, list[Obj]]:
    """A device is in use when its GPU is lost and the plugin starts anew; it, and the slices."""
    bed.start_plugin()
    claim = bed.claim("a", profile=profile)
    held = bed.kubelet.prepare(DRIVER, [claim])[claim.uid].devices[0].device
    before = bed.slices()
    bed.stop_plugin()
    (gpu,) = [g for g in bed.machine.gpus if held.split("-")[1] in g.uuid]
    gpu.lose()
    bed.api.requests.clear()
    bed.start_plugin()
    bed.api.requests.wait_for("list", "resourceslices")
    return held, before


def test_a_gpu_that_is_not_cut_stays_as_published_while_it_is_in_use_and_lost(
    make_bed: Callable[..., Testbed],
) -> None:
    bed = make_bed("l40sx8")
    _, before = lose_while_held(bed, "")
    assert slice_writes(bed) == []
    assert bed.slices() == before


@pytest.mark.parametrize("profile", ["", "1g.10gb"], ids=["whole", "partition"])
def test_of_a_lost_gpu_that_is_cut_only_what_is_in_use_stays(bed: Testbed, profile: str) -> None:
    """Its other devices must go, from several slices: one write each, at one new generation."""
    held, before = lose_while_held(bed, profile)
    lost = held.partition("-mig-")[0]
    bed.api.requests.wait(lambda _: devices(bed.slices()).keys() != devices(before).keys())
    bed.api.requests.wait(lambda _: bed.complete())
    old, now = devices(before), devices(bed.slices())
    assert now == {n: d for n, d in old.items() if n == held or not n.startswith(lost)}
    assert len(slice_writes(bed)) == len(before) == len(bed.slices())
    assert {s["spec"]["pool"]["generation"] for s in bed.slices()} == {2}


def slice_writes(bed: Testbed) -> list[Request]:
    """The node's condition tells of the lost GPU as well."""
    return [r for r in bed.api.requests.writes() if r.resource == "resourceslices"]


def contents(bed: Testbed) -> list[Obj]:
    """Slices but for their generation."""
    return [s["spec"] | {"pool": s["spec"]["pool"]["name"]} for s in bed.slices()]


def devices(slices: list[Obj]) -> dict[str, Obj]:
    return {d["name"]: d for s in slices for d in s["spec"].get("devices", ())}


def test_an_old_beta_only_server_is_spoken_to_in_its_version(bed: Testbed) -> None:
    cluster = bed.api.cluster
    cluster.settings = replace(
        cluster.settings, served={**cluster.settings.served, "resource.k8s.io": ("v1beta1",)}
    )
    bed.start_plugin()
    paths = {r.path for r in bed.api.requests.all("create", "resourceslices")}
    assert all("/v1beta1/" in path for path in paths)
    claim = bed.claim("a")
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error == ""


def test_where_counters_are_dropped_a_gpu_is_never_offered_beside_its_partitions(
    bed: Testbed,
) -> None:
    cluster = bed.api.cluster
    cluster.settings = replace(cluster.settings, git_version="v1.35.2")
    bed.start_plugin()
    kinds = [d["attributes"]["type"]["string"] for s in bed.slices() for d in s["spec"]["devices"]]
    assert kinds == ["gpu", "gpu"]
    assert "this server drops counters" in bed.log.read_text()
    claim = bed.claim("a")
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error == ""
    bed.stop_plugin()
    bed.api.requests.clear()
    bed.start_plugin()
    bed.api.requests.wait_for("list", "resourceslices")
    assert [r for r in bed.api.requests.writes() if r.verb != "create"] == []
    assert len(bed.slices()) == 1
