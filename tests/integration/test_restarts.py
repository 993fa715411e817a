"""The real plugin process over restarts, reboots and losses: nothing forgotten, nothing written."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace

import pytest

from hack.simnvml import driverroot
from hack.testbed import DRIVER, Testbed

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
    before = bed.slices()[0]["spec"]
    bed.api.requests.clear()
    bed.api.cluster.delete_all("resourceslices", fields="spec.nodeName=node-1")
    bed.api.requests.wait_for("create", "resourceslices")
    assert [s["spec"] for s in bed.slices()] == [before]


def test_slices_of_a_node_that_was_made_anew_change_their_owner(bed: Testbed) -> None:
    bed.start_plugin()
    bed.api.cluster.delete("nodes", "node-1")
    node = bed.api.cluster.create("nodes", {"metadata": {"name": "node-1"}})
    bed.api.cluster.delete_all("resourceslices")  # what the garbage collector does
    bed.api.requests.wait_for("create", "resourceslices", count=2)
    (stored,) = bed.slices()
    assert stored["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


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


def test_a_gpu_in_use_stays_published_when_it_is_lost(bed: Testbed) -> None:
    bed.start_plugin()
    claim = bed.claim("a")
    held = bed.kubelet.prepare(DRIVER, [claim])[claim.uid].devices[0].device
    names = {d["name"] for d in bed.slices()[0]["spec"]["devices"]}
    bed.stop_plugin()
    for gpu in bed.machine.gpus:
        if held[4:] in gpu.uuid:
            gpu.lose()
    bed.api.requests.clear()
    bed.start_plugin()
    bed.api.requests.wait_for("list", "resourceslices")
    assert {d["name"] for d in bed.slices()[0]["spec"]["devices"]} == names
    assert bed.api.requests.writes() == []


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
