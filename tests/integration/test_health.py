"""Sick GPUs and the real plugin: withheld at once, never forgotten, back by themselves."""

from __future__ import annotations

import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import pytest

from api.kubelet.health.v1 import health_pb2
from hack.fakeapi.faults import Answer
from hack.fakekubelet import Claim
from hack.simnvml.kmsg import USER, address
from hack.testbed import DRIVER, NODE, Testbed
from tests.integration.test_recovery import EVENTS
from tests.integration.test_trouble import free_port

Obj = dict[str, Any]

pytestmark = pytest.mark.timeout(180)

QUICK: Final = ("--health-seconds=1", "--rescan-seconds=1", "--unknown-seconds=3")
OFF_THE_BUS: Final = "79, GPU has fallen off the bus."
UNHEALTHY: Final = health_pb2.HealthStatus.UNHEALTHY
SOON: Final = 0.5
"""Seconds from a line of the kernel's log to the taint on the API server."""


def devices_of(slices: list[Obj]) -> dict[str, Obj]:
    return {d["name"]: d for s in slices for d in s["spec"].get("devices", ())}


def taints(bed: Testbed) -> dict[str, dict[str, str]]:
    """Of each device that has any: family and value."""
    return {
        name: {t["key"].rpartition("/")[2]: t["value"] for t in device["taints"]}
        for name, device in devices_of(bed.slices()).items()
        if device.get("taints")
    }


def of_gpu(bed: Testbed, slot: int) -> set[str]:
    """The published devices of a GPU."""
    short = f"gpu-{bed.machine.gpu(slot).uuid[4:12]}"
    return {name for name in devices_of(bed.slices()) if name.startswith(short)}


def until(bed: Testbed, holds: Callable[[], object], timeout: float = 30) -> float:
    """Until it is so in the cluster; seconds that it took."""
    began = time.monotonic()
    with bed.api.cluster.history.changed:
        if not bed.api.cluster.history.changed.wait_for(holds, timeout):
            raise AssertionError(f"{taints(bed)}\n{bed.log_end(40)}")
    return time.monotonic() - began


def xid(bed: Testbed, slot: int, text: str, *, instance: int | None = None) -> None:
    where = address(bed.machine, slot)
    part = "" if instance is None else f" GPU-I:{instance:02d} GPU-CI:00"
    bed.kmsg(f"NVRM: Xid (PCI:{where}{part}): {text}")


def condition(bed: Testbed) -> Obj:
    conditions = bed.api.cluster.get("nodes", NODE).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "GPUReady"), {})


def events(bed: Testbed) -> list[str]:
    return [e["reason"] for e in bed.api.cluster.list(EVENTS)[0]]


def looked(bed: Testbed, times: int) -> None:
    """Discovery and the poll have begun so many looks more."""
    symbol = "nvmlDeviceGetCount_v2"
    bed.machine.wait_calls(symbol, bed.machine.calls(symbol) + times, timeout=30)


def prepare(bed: Testbed, claim: Claim) -> Any:
    return bed.kubelet.prepare(DRIVER, [claim])[claim.uid]


def untainted_versions(bed: Testbed, since: int, names: set[str]) -> list[str]:
    """Devices of `names` in every slice written after `since` that had no taint."""
    return [
        d["name"]
        for change in bed.api.cluster.history.since(since)
        if change.new is not None and change.new.get("kind") == "ResourceSlice"
        for d in change.new["spec"].get("devices", ())
        if d["name"] in names and not d.get("taints")
    ]


def slot_of(bed: Testbed, device: str) -> int:
    return next(g.slot for g in bed.machine.gpus if device.startswith(f"gpu-{g.uuid[4:12]}"))


def test_k6_s1_s10_a_gpu_off_the_bus_is_withheld_over_a_crash_and_back_when_it_has_proved_itself(
    bed: Testbed,
) -> None:
    bed.start_plugin(*QUICK)
    running, late = bed.claim("a", profile="1g.10gb"), bed.claim("b", profile="1g.10gb")
    first = prepare(bed, running)
    assert first.error == ""
    sick = slot_of(bed, first.devices[0].device)
    mine, others = of_gpu(bed, sick), of_gpu(bed, 1 - sick)
    until(bed, lambda: condition(bed).get("status") == "True")
    stream = bed.kubelet.health(DRIVER)
    assert {state for state, _ in next(stream).values()} == {health_pb2.HealthStatus.HEALTHY}

    xid(bed, sick, OFF_THE_BUS)
    assert until(bed, lambda: taints(bed).keys() == mine) < SOON
    assert {t["fault"] for t in taints(bed).values()} == {"xid-79"}
    states = next(stream)
    assert {n for n, (state, _) in states.items() if state == UNHEALTHY} == mine
    assert "xid-79" in states[first.devices[0].device][1]
    assert states.keys() == mine | others

    refused = prepare(bed, late).error
    assert "is withheld: xid-79" in refused
    assert "clears by" in refused
    assert prepare(bed, running) == first
    elsewhere = bed.claim("c", profile="1g.10gb")
    assert prepare(bed, elsewhere).devices[0].device in others
    until(bed, lambda: condition(bed)["status"] == "False")
    assert "1 of 2 GPUs are ready" in condition(bed)["message"]
    until(bed, lambda: "DeviceWithheld" in events(bed))

    bed.stop_plugin(signal.SIGKILL)
    seen = bed.api.cluster.history.version
    bed.start_plugin(*QUICK)
    looked(bed, 3)
    assert untainted_versions(bed, seen, mine) == []
    assert taints(bed).keys() == mine
    assert "is withheld: xid-79" in prepare(bed, late).error
    assert events(bed).count("DeviceWithheld") == 1

    bed.machine.gpu(sick).lose()
    looked(bed, 4)
    assert prepare(bed, running) == first
    assert of_gpu(bed, sick) == mine
    bed.end_claim(running)
    bed.machine.gpu(sick).reset()
    until(bed, lambda: taints(bed) == {}, 60)
    until(bed, lambda: condition(bed)["status"] == "True")
    until(bed, lambda: "DeviceReady" in events(bed))
    assert prepare(bed, late).error == ""
    assert slot_of(bed, prepare(bed, late).devices[0].device) == sick


def test_harmless_errors_change_nothing_a_partitions_fault_is_its_own_and_a_lost_gpu_stays(
    bed: Testbed,
) -> None:
    bed.start_plugin(*QUICK)
    claim = bed.claim("a", profile="1g.10gb")
    held = prepare(bed, claim).devices[0].device
    cut = slot_of(bed, held)
    until(bed, lambda: condition(bed).get("status") == "True")
    until(bed, bed.complete)
    looked(bed, 3)
    bed.api.requests.clear()
    for _ in range(20):
        for code in (13, 31, 43, 45):
            xid(bed, cut, f"{code}, pid=7, name=python3, Ch 00000008")
    bed.kmsg(f"NVRM: Xid (PCI:{address(bed.machine, cut)}): {OFF_THE_BUS}", facility=USER)
    looked(bed, 6)
    assert [r for r in bed.api.requests.writes() if r.resource != "leases"] == []

    (made,) = bed.machine.gpu(cut).instances()
    # The API fails while the fault comes, each time in another way.
    for status in (500, 409, 429):
        bed.api.fail(Answer(status=status), verb="update", resource="resourceslices", times=1)
    xid(bed, cut, "46, pid=7, name=python3, GPU stopped processing", instance=made.gi)
    memory = f"memory-slice-{made.start}"
    hit = {
        name
        for name, device in devices_of(bed.slices()).items()
        if name in of_gpu(bed, cut)
        if any(memory in each["counters"] for each in device.get("consumesCounters", ()))
    }
    assert held in hit
    until(bed, lambda: taints(bed).keys() == hit)
    assert hit < of_gpu(bed, cut)
    sibling = bed.claim("b", profile="1g.10gb")
    assert prepare(bed, sibling).error == ""

    idle = 1 - cut
    before = of_gpu(bed, idle)
    bed.machine.gpu(idle).lose()
    until(bed, lambda: before <= taints(bed).keys())
    assert of_gpu(bed, idle) == before
    assert {taints(bed)[n]["fault"] for n in before} == {"gpu-lost"}
    bed.machine.gpu(idle).reset()
    until(bed, lambda: not before & taints(bed).keys(), 60)


def test_lost_evidence_withholds_all_until_probes_pass_and_a_hang_of_nvml_holds_nobody_up(
    make_bed: Callable[..., Testbed],
) -> None:
    bed = make_bed("l40sx8")
    port = free_port()
    bed.start_plugin(*QUICK)
    bed.stop_plugin()
    everything = devices_of(bed.slices()).keys()
    evidence = bed.plugins / DRIVER / "evidence.json"
    evidence.write_text("{")
    seen = bed.api.cluster.history.version
    slow = bed.machine.rule("cuInit", delay_ms=2000)
    bed.start_plugin(*QUICK, "--nvml-hang-seconds=1", f"--http-address=127.0.0.1:{port}")
    until(bed, lambda: taints(bed).keys() == everything)
    assert untainted_versions(bed, seen, set(everything)) == []
    assert {t["unknown"] for t in taints(bed).values()} == {"evidence-damaged"}
    assert list(evidence.parent.glob("evidence.json.damaged-*"))
    slow.clear()
    until(bed, lambda: taints(bed) == {}, 60)
    claim = bed.claim("a")
    answer = prepare(bed, claim)
    assert answer.error == ""

    hang = bed.machine.rule("nvmlDevice*", delay_ms=9000)
    took = []
    ticks = threading.Event()
    for _ in range(10):
        began = time.monotonic()
        assert prepare(bed, claim) == answer
        took.append(time.monotonic() - began)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as alive:
            assert alive.status == 200
        ticks.wait(0.3)
    assert sorted(took)[8] < 0.1
    until(bed, lambda: taints(bed).keys() == everything)
    assert {t.get("unknown") for t in taints(bed).values()} >= {"nvml-hangs"}
    hang.clear()
    until(bed, lambda: taints(bed) == {}, 60)
