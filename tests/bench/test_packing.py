"""The benchmark's own yardsticks: the exact optimum, and what a policy loses against it."""

import random

import pytest

from driver.core.packing import WHOLE
from driver.core.simulation.compare import Contender, Setup, default_offer, outcome, room
from driver.core.simulation.jobs import poisson, rate
from driver.core.simulation.mixes import MIXES, on_board
from tests.bench import repacking
from tests.bench.optimum import GPUS, one_gpu, solve
from tests.bench.regret import ratio
from tests.bench.report import AT_LEAST, Result
from tests.data.mig_boards import H100

OFFER = default_offer(H100)


def test_the_layouts_of_one_gpu_are_as_many_as_counted_by_hand():
    """Halves: two pairs, or one block; a pair has four states by slots and five by starts."""
    gpu = one_gpu(OFFER, tuple(on_board(MIXES["uniform"], OFFER)))
    left, right = 5 * 5 + 1, 5 * 3 + 1
    assert len(gpu.classes) == left * right + 1
    assert len(gpu.ends) == 100


def test_with_one_kind_the_optimum_is_erlangs_formula():
    best = solve(OFFER, {WHOLE: 1.0}, 1.0)
    assert best.acceptance == pytest.approx(0.6, abs=2e-5)


@pytest.mark.parametrize(
    ("mix", "load", "known"),
    [("bimodal", 0.5, 0.7059), ("bimodal", 1.0, 0.5286), ("uniform", 0.5, 0.7706)],
)
def test_the_optimum_is_what_another_solver_found(mix, load, known):
    best = solve(OFFER, on_board(MIXES[mix], OFFER), load)
    assert best.acceptance == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize(("mix", "known"), [("bimodal", 0.7073), ("uniform", 0.8048)])
def test_repacking_accepts_what_was_simulated_elsewhere(mix, known):
    found = repacking.acceptance(OFFER, on_board(MIXES[mix], OFFER), 0.5, GPUS)
    assert found == pytest.approx(known, abs=0.005)


def test_what_choices_lose_is_what_acceptance_lacks():
    """NVIDIA's order loses so much that plain counting sees it too."""
    mix = on_board(MIXES["bimodal"], OFFER)
    best = solve(OFFER, mix, 1.0)
    jobs = list(poisson(mix, rate(OFFER, GPUS, mix, 1.0), 15_000, random.Random(5)))
    setup = Setup(offer=OFFER, gpus=GPUS)
    for contender, most in ((Contender.NVIDIA_RANDOM, 0.8), (Contender.STATIC, 1)):
        counted = outcome(jobs, setup, contender, random.Random(1), warmup=500)
        where = room(setup, contender, random.Random(1))
        judged = ratio(jobs, where, OFFER, best, warmup=500)
        assert judged == pytest.approx(counted.compute_acceptance / best.acceptance, abs=0.02)
        assert judged < most


def test_a_goal_can_be_a_floor():
    floor = Result(value=0.995, goal=0.99, unit="", sense=AT_LEAST)
    assert floor.holds
    assert not Result(value=0.995, goal=0.99, unit="").holds
