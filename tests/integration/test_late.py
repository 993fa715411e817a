"""The real plugin with `binding: prepare`: partitions are numbered, their places chosen late."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from hack.fakeapi.scheduler import Unschedulable
from hack.fakekubelet import Claim
from hack.testbed import DRIVER, Testbed

pytestmark = pytest.mark.timeout(120)

FLAGS = ("--mig-profiles=1g.10gb", "--binding=prepare", "--rescan-seconds=1")
SMALL = "1g.10gb"


@pytest.fixture
def one(make_bed: Callable[..., Testbed]) -> Testbed:
    """A node with one GPU."""
    bed = make_bed("h100x1")
    bed.start_plugin(*FLAGS)
    return bed


def prepared(bed: Testbed, claim: Claim) -> str:
    """The name of its device."""
    answer = bed.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert answer.error == "", answer.error
    (device,) = answer.devices
    return device.device


def devices(bed: Testbed) -> dict[str, dict[str, Any]]:
    return {d["name"]: d for s in bed.slices() for d in s["spec"].get("devices") or ()}


def places(bed: Testbed) -> list[int]:
    return sorted(i.start for i in bed.machine.snapshot().get(0, []))


def test_a_gpu_is_offered_by_number_and_its_sums(one: Testbed) -> None:
    gpu = one.machine.gpus[0].uuid[4:12]
    assert set(devices(one)) == {
        f"gpu-{gpu}",
        *(f"gpu-{gpu}-mig-1g10gb-n{n}" for n in range(7)),
    }
    (counters,) = (c for s in one.slices() for c in s["spec"].get("sharedCounters") or ())
    assert counters["counters"] == {"memory-slices": {"value": "8"}}


def test_seven_claims_fill_a_gpu_and_whoever_ends_makes_room_for_the_next(one: Testbed) -> None:
    claims = [one.claim(f"c{n}", profile=SMALL) for n in range(7)]
    names = [prepared(one, claim) for claim in claims]
    assert len(set(names)) == 7
    assert places(one) == [*range(7)]
    for name, profile in (("one-too-many", SMALL), ("whole-too-early", "")):
        with pytest.raises(Unschedulable):
            one.claim(name, profile=profile)

    for claim in claims[1:5]:
        one.end_claim(claim)
    assert len(places(one)) == 3
    again = [one.claim(f"d{n}", profile=SMALL) for n in range(4)]
    assert {prepared(one, claim) for claim in again} == set(names[1:5])
    assert places(one) == [*range(7)]

    for claim in [claims[0], *claims[5:], *again]:
        one.end_claim(claim)
    assert places(one) == []
    whole = prepared(one, one.claim("whole"))
    assert whole == f"gpu-{one.machine.gpus[0].uuid[4:12]}"


def test_a_claim_keeps_its_place_over_a_restart_while_others_go(one: Testbed) -> None:
    first, second = (one.claim(name, profile=SMALL) for name in ("a", "b"))
    for claim in (first, second):
        prepared(one, claim)
    answer = one.kubelet.prepare(DRIVER, [second])
    (spec,) = (f for f in one.cdi.iterdir() if second.uid in f.name)
    content = spec.read_bytes()
    one.end_claim(first)
    stays = places(one)
    one.stop_plugin(signal.SIGKILL)
    one.start_plugin(*FLAGS)
    assert one.kubelet.prepare(DRIVER, [second]) == answer
    assert (places(one), spec.read_bytes()) == (stays, content)


def test_partitions_go_to_the_gpu_that_has_some(make_bed: Callable[..., Testbed]) -> None:
    bed = make_bed("h100x2")
    bed.start_plugin(*FLAGS)
    parents = {
        prepared(bed, bed.claim(f"c{n}", profile=SMALL)).partition("-mig-")[0] for n in range(7)
    }
    assert len(parents) == 1
    assert prepared(bed, bed.claim("whole")) not in parents


def test_a_set_that_can_get_stuck_ends_the_plugin_with_2_and_the_witness(bed: Testbed) -> None:
    done = subprocess.run(
        [*bed.command(), "--mig-profiles=3g.40gb,4g.40gb", "--binding=prepare"],
        env=bed.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "end 3g.40gb at 4, allocate 4g.40gb: admitted, but no start is free" in done.stderr
    assert bed.slices() == []
