"""Partitions by the real plugin on simulated GPUs: made for a claim, gone after it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hack.fakeapi.scheduler import Unschedulable
from hack.fakekubelet import Claim
from hack.fakekubelet.calls import Refused
from hack.testbed import DRIVER, Testbed
from tests.integration import others

pytestmark = pytest.mark.timeout(120)

MakeBed = Callable[..., Testbed]
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
COMPUTE = "nvmlGpuInstanceCreateComputeInstance"
RESCAN = "--rescan-seconds=1"


@pytest.fixture
def one(make_bed: MakeBed) -> Testbed:
    """A node with one GPU."""
    return make_bed("h100x1")


def prepare(bed: Testbed, claim: Claim) -> str:
    """The error, if any."""
    return bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error


def run(bed: Testbed, name: str, profile: str = "") -> Claim:
    """A claim, allocated and prepared."""
    claim = bed.claim(name, profile=profile)
    assert prepare(bed, claim) == ""
    return claim


def cuts(bed: Testbed) -> list[tuple[int, str, int, bool]]:
    """What is on the hardware: GPU, profile, start, whether it is complete."""
    found = bed.machine.snapshot().values()
    return sorted((i.gpu, i.profile, i.start, i.ci is not None) for part in found for i in part)


def modes(bed: Testbed) -> list[int]:
    return [gpu.number("mig_current") for gpu in bed.machine.gpus]


def devices(bed: Testbed) -> dict[str, dict[str, Any]]:
    return {d["name"]: d for s in bed.slices() for d in s["spec"].get("devices", ())}


def tainted(bed: Testbed) -> dict[str, str]:
    """The family of each device's taint."""
    return {
        name: d["taints"][0]["key"].rpartition("/")[2]
        for name, d in devices(bed).items()
        if d.get("taints")
    }


def until(bed: Testbed, holds: Callable[[], bool]) -> None:
    """After some request to the API, at the latest the plugin's next write."""
    bed.api.requests.wait(lambda _: holds() and bed.complete(), timeout=20)


def rescanned(bed: Testbed, times: int = 2) -> None:
    """The hardware has been read anew, from the beginning."""
    symbol = "nvmlDeviceGetCount_v2"
    bed.machine.wait_calls(symbol, bed.machine.calls(symbol) + times, timeout=20)


def test_small_ones_and_a_large_one_share_a_gpu_and_leave_it_whole(bed: Testbed) -> None:
    bed.start_plugin()
    claims = [
        run(bed, str(n), p) for n, p in enumerate(("1g.10gb", "1g.10gb", "3g.40gb", "1g.10gb"))
    ]
    assert cuts(bed) == [
        (0, "1g.10gb", 4, True),
        (0, "1g.10gb", 5, True),
        (0, "1g.10gb", 6, True),
        (0, "3g.40gb", 0, True),
    ]
    assert modes(bed) == [1, 0]
    for claim in claims:
        bed.end_claim(claim)
    assert (cuts(bed), modes(bed)) == ([], [0, 0])
    assert not [*bed.cdi.iterdir(), *bed.ledger.glob("*.json")]


def test_a_gpu_is_whole_or_cut_and_never_both(one: Testbed) -> None:
    one.start_plugin()
    for first, second in (("", "1g.10gb"), ("1g.10gb", "")):
        held = run(one, f"a{first}", first)
        one.create_claim(f"b{first}", profile=second)
        with pytest.raises(Unschedulable):
            one.allocate(f"b{first}")
        one.end_claim(held)
        other = one.allocate(f"b{first}")
        assert prepare(one, other) == ""
        one.end_claim(other)
    assert (cuts(one), modes(one)) == ([], [0])


def test_what_a_claim_got_is_in_its_status(one: Testbed) -> None:
    one.start_plugin()
    claim = run(one, "a", "2g.20gb")
    one.api.requests.wait_for("patch", "resourceclaims/status")
    stored = one.api.cluster.get("resourceclaims", "a", "default")
    (told,) = stored["status"]["devices"]
    (there,) = one.machine.gpu(0).instances()
    assert told["data"] == {
        "uuid": there.uuid,
        "parentUUID": one.machine.gpu(0).uuid,
        "gpuInstance": there.gi,
        "computeInstance": there.ci,
    }
    (spec,) = one.cdi.iterdir()
    assert f"TESSERA_DEVICES={there.uuid}" in spec.read_text()
    assert claim.uid in spec.name


@pytest.mark.parametrize("symbol", [CREATE, COMPUTE])
def test_a_creation_that_fails_is_the_error_of_one_claim_and_leaves_nothing(
    bed: Testbed, symbol: str
) -> None:
    """No permission, lost, in use, no room, unknown: each once, while another claim is served."""
    bed.start_plugin()
    claim = bed.claim("a", profile="1g.10gb")
    for code in (4, 15, 19, 23, 999):
        good = bed.claim("good")
        with bed.machine.rule(symbol, ret=code, gpu=0):
            answers = bed.kubelet.prepare(DRIVER, [claim, good])
        error = answers[claim.uid].error
        assert f"NVML code {code}" in error
        assert symbol in error
        assert answers[good.uid].error == ""
        assert (cuts(bed), modes(bed)) == ([], [0, 0]), code
        assert not (bed.ledger / f"{claim.uid}.json").exists()
        bed.end_claim(good)
    assert prepare(bed, claim) == ""
    assert cuts(bed) == [(0, "1g.10gb", 6, True)]


@pytest.mark.parametrize(
    ("symbol", "then"), [(CREATE, "prepared"), (COMPUTE, "prepared"), (COMPUTE, "ended")]
)
def test_a_plugin_killed_inside_a_creation_leaves_nothing_that_the_next_cannot_handle(
    one: Testbed, symbol: str, then: str
) -> None:
    one.start_plugin()
    claim = one.claim("a", profile="1g.10gb")
    with ThreadPoolExecutor(1) as pool, one.machine.rule(symbol, delay_ms=3000, times=1):
        calling = pool.submit(one.kubelet.prepare, DRIVER, [claim])
        one.machine.wait_calls(symbol, 1, timeout=20)
        one.stop_plugin(signal.SIGKILL)
        with pytest.raises(Refused):
            calling.result(timeout=20)
    one.start_plugin()
    assert (one.ledger / f"{claim.uid}.json").exists()
    if then == "prepared":
        assert prepare(one, claim) == ""
        assert cuts(one) == [(0, "1g.10gb", 6, True)]
    one.end_claim(claim)
    assert (cuts(one), modes(one)) == ([], [0])


def test_the_end_of_a_claim_waits_for_a_process_that_is_just_ending(one: Testbed) -> None:
    one.start_plugin()
    claim = run(one, "a", "1g.10gb")
    (there,) = one.machine.gpu(0).instances()
    one.machine.gpu(0).busy(gi=there.gi, ci=there.ci)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(one.kubelet.unprepare, DRIVER, [claim])
        one.machine.wait_calls("nvmlComputeInstanceDestroy", 2, timeout=20)
        assert not ending.done()
        one.machine.gpu(0).busy(False, gi=there.gi, ci=there.ci)
        assert ending.result(timeout=20)[claim.uid].error == ""
    assert (cuts(one), modes(one)) == ([], [0])


@pytest.mark.parametrize("away", ["lost", "unplugged"])
def test_a_claim_on_a_gpu_that_is_gone_can_end(one: Testbed, away: str) -> None:
    one.start_plugin()
    claim = run(one, "a", "1g.10gb")
    gpu = one.machine.gpu(0)
    if away == "lost":
        gpu.lose()
    else:
        gpu.unplug()
    one.end_claim(claim)
    assert not [*one.cdi.iterdir(), *one.ledger.glob("*.json")]


def test_what_somebody_else_cut_is_tainted_and_never_destroyed(one: Testbed) -> None:
    others.make(one, 0, "2g.20gb", 4)
    others.make(one, 0, "1g.10gb", 6, bare=True)
    theirs = [(0, "1g.10gb", 6, False), (0, "2g.20gb", 4, True)]
    one.start_plugin(RESCAN)
    assert set(tainted(one).values()) == {"foreign"}
    free = {name.rpartition("mig-")[2] for name in devices(one).keys() - tainted(one).keys()}
    assert free == {
        *(f"1g10gb-{n}" for n in range(4)), "1g20gb-0", "1g20gb-2", "2g20gb-0", "2g20gb-2",
        "3g40gb-0", "4g40gb-0",
    }  # fmt: skip
    ours = run(one, "a", "3g.40gb")
    assert cuts(one) == sorted([*theirs, (0, "3g.40gb", 0, True)])
    rescanned(one)
    one.end_claim(ours)
    assert (cuts(one), modes(one)) == (theirs, [1])
    one.create_claim("whole")
    with pytest.raises(Unschedulable):
        one.allocate("whole")


def test_what_came_after_the_last_look_is_named_to_the_claim_and_then_tainted(
    one: Testbed,
) -> None:
    one.start_plugin(RESCAN)
    claim = one.claim("a", profile="1g.10gb")
    others.make(one, 0, "1g.10gb", 6)
    assert "that Tessera did not make" in prepare(one, claim)
    assert cuts(one) == [(0, "1g.10gb", 6, True)]
    until(one, lambda: len(tainted(one)) == 4)
    (theirs,) = one.machine.gpu(0).instances()
    others.destroy(one, 0, theirs.gi)
    until(one, lambda: tainted(one) == {})
    assert prepare(one, claim) == ""


def test_what_is_ours_is_never_taken_for_somebody_elses(one: Testbed) -> None:
    """Also when a claim ends and the last reading of the hardware still has its partition."""
    one.start_plugin(RESCAN)
    one.api.requests.clear()
    claim = run(one, "a", "1g.10gb")
    rescanned(one)
    one.end_claim(claim)
    rescanned(one)
    run(one, "b", "1g.10gb")
    written = [r for r in one.api.requests.writes() if r.resource == "resourceslices"]
    assert written == []


def test_a_gpu_whose_mode_waits_for_a_reset_is_withheld_until_then(bed: Testbed) -> None:
    bed.machine.gpu(0).set(mig_pending=1)
    bed.start_plugin(RESCAN)
    name = f"gpu-{bed.machine.gpu(0).uuid[4:12]}"
    assert set(tainted(bed).values()) == {"mig-mode"}
    assert set(tainted(bed)) == {n for n in devices(bed) if n.startswith(name)}
    claim = run(bed, "a", "1g.10gb")
    assert cuts(bed) == [(1, "1g.10gb", 6, True)]
    bed.machine.gpu(0).reset()
    until(bed, lambda: tainted(bed) == {})
    bed.end_claim(claim)


@pytest.fixture
def cut(make_bed: MakeBed) -> Testbed:
    """An A100 that an administrator has cut, and one that is whole."""
    bed = make_bed(["a100-80", "a100-80"])
    gpu = bed.machine.gpu(0)
    gpu.set(mig_pending=1)
    gpu.reset()
    others.make(bed, 0, "1g.10gb", 2)
    others.make(bed, 0, "3g.40gb", 4)
    return bed


def test_an_administrators_partitions_are_given_out_and_stay(cut: Testbed) -> None:
    cut.start_plugin(RESCAN)
    before = cuts(cut)
    one, two = run(cut, "one", "3g.40gb"), run(cut, "two", "1g.10gb")
    whole = run(cut, "whole")
    cut.create_claim("more", profile="1g.10gb")
    with pytest.raises(Unschedulable):
        cut.allocate("more")
    for claim in (one, two, whole):
        cut.end_claim(claim)
    assert (cuts(cut), modes(cut)) == (before, [1, 0])
    others.make(cut, 0, "1g.10gb", 0)
    until(cut, lambda: len(devices(cut)) == 4)
    assert prepare(cut, cut.allocate("more")) == ""


def test_an_administrators_partition_that_is_gone_is_the_claims_error(cut: Testbed) -> None:
    cut.start_plugin()
    claim = cut.claim("a", profile="3g.40gb")
    (there,) = [i for i in cut.machine.gpu(0).instances() if i.profile == "3g.40gb"]
    others.destroy(cut, 0, there.gi)
    # By the partition's UUID, or by the device's name where NVML's event came first.
    assert "is not on" in prepare(cut, claim)


def test_an_excluded_gpu_is_not_offered(bed: Testbed) -> None:
    bed.start_plugin('--gpus=[{"match": {"index": 0}, "mode": "excluded"}]')
    name = f"gpu-{bed.machine.gpu(1).uuid[4:12]}"
    assert len(devices(bed)) == 18
    assert all(n.startswith(name) for n in devices(bed))


def test_distributed_small_ones_go_to_different_gpus(bed: Testbed) -> None:
    bed.start_plugin("--policy=distributed")
    for name in "ab":
        run(bed, name, "1g.10gb")
    assert [gpu for gpu, *_ in cuts(bed)] == [0, 1]


TWO_RULES = json.dumps(
    [
        {"match": {"index": 0}, "mode": "full"},
        {"match": {"product": "H100"}, "mode": "dynamic"},
    ]
)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--mig-profiles=1g.99gb", "'1g.99gb' is listed, but no GPU of this node has it"),
        (
            f"--gpus={TWO_RULES}",
            "is claimed by 2 rules",
        ),
        ("--binding=prepare", "this sequence gets stuck: allocate"),
    ],
)
def test_a_choice_that_does_not_fit_the_hardware_ends_with_2_and_says_why(
    one: Testbed, flag: str, said: str
) -> None:
    one.start_plugin(flag, wait=False)
    assert one.process is not None
    assert one.process.wait(30) == 2
    assert said in one.log_end()
    assert one.slices() == []
