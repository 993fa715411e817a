"""Many claims at once on GPUs that take their time: nobody's call ends without an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.fakekubelet import Claim
from hack.testbed import DRIVER, Testbed

pytestmark = pytest.mark.timeout(180)

SLOW = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance")
MANY = 16


@pytest.mark.parametrize("calls", [MANY, 1], ids=["a call each", "one call"])
def test_sixteen_claims_at_once_on_slow_gpus_are_all_served_and_leave_nothing(
    make_bed: Callable[..., Testbed], calls: int
) -> None:
    bed = make_bed("h100x4")
    bed.start_plugin()
    claims = [bed.claim(f"c{n}", profile="1g.10gb") for n in range(MANY)]
    shares = [claims[n::calls] for n in range(calls)]

    def prepare(share: list[Claim]) -> list[str]:
        """Refused where no answer comes in the 45 seconds that the kubelet waits."""
        answers = bed.kubelet.prepare(DRIVER, share)
        return [answers[claim.uid].error for claim in share]

    def unprepare(share: list[Claim]) -> list[str]:
        answers = bed.kubelet.unprepare(DRIVER, share)
        return [answers[claim.uid].error for claim in share]

    for symbol in SLOW:
        bed.machine.rule(symbol, delay_ms=300)
    began = time.monotonic()
    with ThreadPoolExecutor(calls) as pool:
        assert not any(error for told in pool.map(prepare, shares) for error in told)
        took = time.monotonic() - began
        made = [i for part in bed.machine.snapshot().values() for i in part]
        assert len({(i.gpu, i.start) for i in made if i.ci is not None}) == MANY
        assert len(list(bed.cdi.iterdir())) == len(list(bed.ledger.glob("*.json"))) == MANY
        assert not any(error for told in pool.map(unprepare, shares) for error in told)
    print(f"{MANY} claims in {calls} calls: {took:.1f} s")
    assert bed.machine.snapshot() == {}
    assert not [*bed.cdi.iterdir(), *bed.ledger.glob("*.json")]
    assert [gpu.number("mig_current") for gpu in bed.machine.gpus] == [0] * 4
