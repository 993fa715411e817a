"""The real plugin finds what crashes, damage and missed calls left, and mends it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.fakeapi.kinds import Kind
from hack.fakekubelet import Claim
from hack.fakekubelet.calls import Refused
from hack.simnvml import driverroot
from hack.simnvml.library import RULE_CRASH
from hack.testbed import DRIVER, NODE, Testbed
from tests.integration import others
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(180)

FLAGS = ("--recovery-seconds=1", "--orphan-grace-seconds=1", "--rescan-seconds=1")
COMPUTE = "nvmlGpuInstanceCreateComputeInstance"
FLIPPED = 0x20
EVENTS = Kind(group="events.k8s.io", plural="events", kind="Event", namespaced=True)


def run(bed: Testbed, name: str, profile: str = "") -> Claim:
    """A claim, allocated and prepared."""
    claim = bed.claim(name, profile=profile)
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error == ""
    return claim


def vanish(bed: Testbed, claim: Claim) -> None:
    """Its pod was deleted by force, and the claim with it; nobody unprepares it."""
    bed.scheduler.release(claim.name)
    bed.api.cluster.delete("resourceclaims", claim.name, namespace="default")


def cuts(bed: Testbed) -> list[tuple[int, str, int, bool]]:
    """What is on the hardware: GPU, profile, start, whether it is complete."""
    found = bed.machine.snapshot().values()
    return sorted((i.gpu, i.profile, i.start, i.ci is not None) for part in found for i in part)


def events(bed: Testbed) -> list[dict[str, Any]]:
    return bed.api.cluster.list(EVENTS, namespace="default")[0]


def told(bed: Testbed, reason: str) -> dict[str, Any]:
    """Wait for the event; each is a request to the API."""
    bed.api.requests.wait(lambda _: any(e["reason"] == reason for e in events(bed)), timeout=30)
    return next(e for e in events(bed) if e["reason"] == reason)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("*.json")}


def deleted(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= FLIPPED
    path.write_bytes(bytes(data))


def from_another_node(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"node":"node-1"', b'"node":"node-2"'))


def a_folder_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [deleted, emptied, truncated, flipped, from_another_node, a_folder_in_its_place]
)
def test_an_entry_that_is_lost_while_its_pod_runs_is_made_again_and_ends_in_order(
    bed: Testbed, damage: Callable[[Path], None]
) -> None:
    bed.start_plugin()
    claim, other = run(bed, "a", "2g.20gb"), run(bed, "b", "1g.10gb")
    first = bed.kubelet.prepare(DRIVER, [claim])
    before, there = files(bed.ledger), cuts(bed)
    bed.stop_plugin(signal.SIGKILL)
    damage(bed.ledger / f"{claim.uid}.json")
    bed.start_plugin(*FLAGS)
    event = told(bed, "LedgerRebuilt")
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE}
    assert claim.uid in event["note"]
    assert bed.kubelet.prepare(DRIVER, [claim]) == first
    assert files(bed.ledger) == before
    assert cuts(bed) == there
    bed.end_claim(claim)
    bed.end_claim(other)
    assert cuts(bed) == []
    assert not [*bed.cdi.iterdir(), *bed.ledger.glob("*.json")]
    run(bed, "c")


def test_a_ledger_that_is_gone_as_a_whole_is_made_again(bed: Testbed) -> None:
    bed.start_plugin()
    claims = [run(bed, "a", "2g.20gb"), run(bed, "b")]
    first = bed.kubelet.prepare(DRIVER, claims)
    before = files(bed.ledger)
    bed.stop_plugin()
    shutil.rmtree(bed.ledger)
    bed.start_plugin()
    assert bed.kubelet.prepare(DRIVER, claims) == first
    assert files(bed.ledger) == before


def test_cdi_files_are_back_before_the_kubelet_can_ask(bed: Testbed) -> None:
    bed.start_plugin()
    run(bed, "a", "2g.20gb")
    altered = run(bed, "b")
    before = files(bed.cdi)
    bed.stop_plugin()
    shutil.rmtree(bed.cdi)
    bed.cdi.mkdir()
    next(Path(bed.cdi / name) for name in before if altered.uid in name).write_text("{")
    bed.start_plugin()
    assert files(bed.cdi) == before


def test_a_claim_that_goes_while_the_plugin_is_away_frees_its_device_after_the_grace(
    bed: Testbed,
) -> None:
    bed.start_plugin()
    claims = [run(bed, "a", "2g.20gb"), run(bed, "b")]
    kept = run(bed, "c", "1g.10gb")
    bed.stop_plugin()
    for claim in claims:
        vanish(bed, claim)
    bed.start_plugin(*FLAGS)
    bed.api.requests.wait(
        lambda _: [e["reason"] for e in events(bed)].count("OrphanRemoved") == len(claims),
        timeout=30,
    )
    assert files(bed.ledger).keys() == {f"{kept.uid}.json"}
    assert [name for _, name, _, _ in cuts(bed)] == ["1g.10gb"]
    again = run(bed, "d")
    assert bed.kubelet.unprepare(DRIVER, claims) is not None
    assert f"{again.uid}.json" in files(bed.ledger)


def test_a_process_on_a_gone_claims_partition_keeps_it(bed: Testbed) -> None:
    bed.start_plugin(*FLAGS)
    claim = run(bed, "a", "2g.20gb")
    (instance,) = (i for part in bed.machine.snapshot().values() for i in part)
    gpu = bed.machine.gpu(instance.gpu)
    gpu.process(42, 2**20, gi=instance.gi, ci=instance.ci)
    vanish(bed, claim)
    symbol = "nvmlDeviceGetComputeRunningProcesses_v3"
    bed.machine.wait_calls(symbol, bed.machine.calls(symbol) + 2, timeout=30)
    assert (len(cuts(bed)), len(files(bed.ledger))) == (1, 1)
    gpu.process(42, 0, gi=instance.gi, ci=instance.ci)
    told(bed, "OrphanRemoved")
    assert (cuts(bed), files(bed.ledger)) == ([], {})


def test_half_made_partitions_of_a_claim_that_is_gone_are_cleaned_and_foreign_ones_stay(
    make_bed: Callable[..., Testbed],
) -> None:
    bed = make_bed("h100x1")
    others.make(bed, 0, "1g.10gb", 0)
    bed.start_plugin()
    bed.machine.rule(COMPUTE, ret=RULE_CRASH, times=1)
    claim = bed.claim("a", profile="2g.20gb")
    with pytest.raises(Refused):
        bed.kubelet.prepare(DRIVER, [claim])
    assert bed.process is not None
    bed.process.wait(30)
    assert len(cuts(bed)) == 2
    vanish(bed, claim)
    bed.start_plugin(*FLAGS)
    told(bed, "OrphanRemoved")
    assert cuts(bed) == [(0, "1g.10gb", 0, True)]
    assert files(bed.ledger) == {}


def test_after_a_boot_the_same_claim_has_the_same_place_and_names(bed: Testbed) -> None:
    bed.start_plugin()
    claims = [run(bed, "a", "1g.10gb"), run(bed, "b", "3g.40gb"), run(bed, "c")]
    first = bed.kubelet.prepare(DRIVER, claims)
    there = cuts(bed)
    gone = run(bed, "d", "1g.10gb")
    bed.stop_plugin(signal.SIGKILL)
    bed.machine.reboot()
    driverroot.render(bed.machine, bed.root, nodes=True)
    shutil.rmtree(bed.cdi)
    vanish(bed, gone)
    bed.start_plugin(*FLAGS)
    assert bed.kubelet.prepare(DRIVER, claims) == first
    assert cuts(bed) == there
    bed.api.requests.wait(
        lambda _: files(bed.ledger).keys() == {f"{c.uid}.json" for c in claims}, timeout=30
    )


def test_nvml_is_let_go_of_while_nobody_asks_and_opened_by_the_next_claim(bed: Testbed) -> None:
    hourly = [f"--{name}-seconds=3600" for name in ("recovery", "rescan", "health")]
    bed.start_plugin("--nvml-idle-seconds=0.2", *hourly)
    bed.machine.wait_calls("nvmlShutdown", 1, timeout=30)
    assert bed.process is not None
    maps = Path(f"/proc/{bed.process.pid}/maps")
    while_idle = bed.machine.calls("nvmlInit*")
    claim = run(bed, "a", "1g.10gb")
    assert bed.machine.calls("nvmlInit*") > while_idle
    bed.machine.wait_calls("nvmlShutdown", bed.machine.calls("nvmlInit*"), timeout=30)
    # It is unloaded a moment after that call.
    until(lambda: str(bed.root) not in maps.read_text(), "NVML is still mapped")
    bed.end_claim(claim)
    assert cuts(bed) == []
