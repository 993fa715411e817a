"""That the figures are right: the same as another simulator's, on long streams."""

import random

import pytest

from driver.core.simulation.compare import Contender, Setup, default_offer, outcome
from driver.core.simulation.jobs import poisson, rate
from driver.core.simulation.mixes import MIXES, on_board
from tests.data.mig_boards import H100


def test_eight_gpus_come_out_as_measured_elsewhere():
    """Compute acceptance and excess GPUs of the uniform mix at load 0.5."""
    offer = default_offer(H100)
    mix = on_board(MIXES["uniform"], offer)
    jobs = list(poisson(mix, rate(offer, 8, mix, 0.5), 8000, random.Random(1)))
    setup = Setup(offer=offer, gpus=8)
    expected = {
        Contender.REPACK: (0.981, 0.0),
        Contender.PACKED: (0.963, 0.71),
        Contender.STATIC: (0.957, 0.87),
        Contender.NVIDIA: (0.946, 1.01),
        Contender.NVIDIA_RANDOM: (0.895, 2.06),
    }
    found = {c: outcome(jobs, setup, c, random.Random(2), warmup=400) for c in expected}
    for contender, (compute, excess) in expected.items():
        assert found[contender].compute_acceptance == pytest.approx(compute, abs=0.012)
        assert found[contender].excess_gpus == pytest.approx(excess, abs=0.06)
    ordered = [found[c].false_refusals for c in expected]
    assert ordered == sorted(ordered)
