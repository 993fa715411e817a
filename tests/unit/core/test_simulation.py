"""The simulator: what it counts, and that its policies are the driver's own."""

import random

import pytest

from driver.core.errors import ConfigError
from driver.core.geometry import offers
from driver.core.occupancy import states
from driver.core.packing import WHOLE, Policy, make_order
from driver.core.simulation.compare import Contender, Setup, default_offer, outcome
from driver.core.simulation.jobs import Job, poisson, rate
from driver.core.simulation.kinds import kind_named, name_of
from driver.core.simulation.mixes import MIXES, on_board
from driver.core.simulation.node import Node
from driver.core.simulation.play import gap_closed, play
from driver.core.simulation.policies import Published
from driver.core.simulation.rooms import Placed
from tests.data.mig_boards import A30, A100_40, H100, RTX_PRO_6000
from tests.unit.core.given_mig import node

OFFER = default_offer(H100)
UNIFORM = on_board(MIXES["uniform"], OFFER)


def stream(count, *, mix=UNIFORM, gpus=8, load=0.5, seed=1, offer=OFFER):
    return list(poisson(mix, rate(offer, gpus, mix, load), count, random.Random(seed)))


def played(contender, jobs, *, gpus=8, offer=OFFER, lag=0, **options):
    setup = Setup(offer=offer, gpus=gpus, lag=lag)
    return outcome(jobs, setup, contender, random.Random(2), **options)


class Watched:
    """A room that compares each choice with the policy's, and the state with one added up anew."""

    def __init__(self, boards, policy):
        self.node = Node(boards)
        self.policy = policy
        self.room = Placed(self.node, Published(self.node, policy))
        self.taken = 0

    @property
    def idle(self):
        return self.room.idle

    def take(self, kind):
        now = states(self.node.boards, self.node.live)
        assert tuple(self.node.now) == now
        assert self.idle == sum(s.idle for s in now)
        order = make_order(self.node.boards, self.node.live, self.policy)
        best = next(iter(order.ranked(kind).feasible), None)
        found = self.room.take(kind)
        assert found == best
        self.taken += found is not None
        return found

    def end(self, seat):
        self.room.end(seat)

    def fragmentation(self):
        return self.room.fragmentation()


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    ("geometry", "listed"),
    [(H100, None), (A30, None), (H100, ["1g.10gb", "1g.10gb+me", "2g.20gb"])],
)
def test_without_lag_the_published_slices_give_what_the_policy_chooses(policy, geometry, listed):
    offer = offers([geometry], listed)[0]
    kinds = dict.fromkeys([*(p.name for p in offer.profiles), WHOLE], 1.0)
    jobs = stream(250, mix=kinds, gpus=3, load=0.9, offer=offer)
    room = Watched(node(3, geometry, listed), policy)
    minimal = [j for j in jobs if "+me" not in j.kind]
    found = play(minimal, room, offer, 3)
    assert 0 < found.accepted == room.taken < found.offered == len(minimal)


def test_one_seed_is_one_result_and_another_seed_another():
    one = [played(c, stream(150), samples=50) for c in Contender]
    assert one == [played(c, stream(150), samples=50) for c in Contender]
    assert one != [played(c, stream(150, seed=2), samples=50) for c in Contender]


def test_whole_gpus_alone_are_lost_as_erlang_says():
    """B(2 servers, 2 erlangs) = 0.4, whatever the order."""
    jobs = stream(6_000, mix={WHOLE: 1.0}, gpus=2, load=1.0)
    for contender in (Contender.STATIC, Contender.NVIDIA, Contender.REPACK):
        found = played(contender, jobs, gpus=2)
        assert found.acceptance == pytest.approx(0.6, abs=0.02)
        assert found.false_refusals == found.excess_gpus == 0


def test_a_stream_is_as_heavy_as_was_asked():
    jobs = stream(20_000, load=0.7)
    of = {p.name: p.size for p in OFFER.profiles} | {WHOLE: 8}
    asked = sum(of[j.kind] * j.lasts for j in jobs)
    assert asked / (jobs[-1].at * 8 * 8) == pytest.approx(0.7, rel=0.02)
    assert [j.at for j in jobs] == sorted(j.at for j in jobs)


def test_means_are_over_time_from_the_end_of_the_warm_up_to_the_last_arrival():
    jobs = [Job(0, WHOLE, 4), Job(2, WHOLE, 4), Job(8, WHOLE, 1)]
    found = played(Contender.PACKED, jobs, gpus=2)
    assert (found.offered, found.accepted, found.in_use) == (3, 3, 1.0)
    late = played(Contender.PACKED, jobs, gpus=2, warmup=1)
    assert (late.offered, late.in_use) == (2, pytest.approx((2 * 2 + 2 * 1) / 6))
    shifted = [j._replace(at=j.at + 1e9) for j in jobs]
    assert played(Contender.PACKED, shifted, gpus=2).in_use == 1.0


def test_a_bad_start_costs_a_refusal_that_repacking_would_avoid():
    jobs = [Job(0, "1g.10gb", 9), Job(1, "4g.40gb", 9), Job(2, "4g.40gb", 9), Job(3, "1g.10gb", 9)]
    lowest = played(Contender.NVIDIA, jobs, gpus=1)
    assert (lowest.accepted, lowest.accepted_compute, lowest.avoidable) == (2, 2, 2)
    packed = played(Contender.PACKED, jobs, gpus=1)
    assert (packed.accepted, packed.accepted_compute, packed.avoidable) == (3, 6, 0)
    assert packed.compute_acceptance == 6 / 10
    best = played(Contender.REPACK, jobs, gpus=1)
    assert gap_closed(packed, lowest, best) == 1


def test_scattered_jobs_use_more_gpus_than_they_need():
    jobs = [*(Job(n, "1g.10gb", 99) for n in range(4)), Job(10, "1g.10gb", 1)]
    spread = played(Contender.DISTRIBUTED, jobs, gpus=4, samples=4)
    assert spread.in_use == pytest.approx((1 + 2 + 3 + 4 * 7) / 10)
    assert spread.minimum == 1
    assert spread.whole_gpus == pytest.approx((4 - 3.4) / 3)
    assert spread.fragmentation > 0
    packed = played(Contender.PACKED, jobs, gpus=4, samples=4)
    assert (packed.excess_gpus, packed.whole_gpus, packed.fragmentation) == (0, 1, 0)


def test_an_order_that_lags_packs_worse_and_far_behind_it_is_the_static_one():
    jobs = stream(500, load=0.8)
    by_lag = [played(Contender.PACKED, jobs, lag=lag).excess_gpus for lag in (0, 2)]
    assert by_lag == sorted(by_lag)
    assert played(Contender.PACKED, jobs, lag=4) == played(Contender.STATIC, jobs)


def test_a_mix_names_roles_that_boards_fill_or_lack():
    assert on_board(MIXES["small"], default_offer(A100_40)) == {
        "1g.5gb": 40,
        "1g.10gb": 15,
        "2g.10gb": 25,
        "3g.20gb": 12,
        "4g.20gb": 5,
        WHOLE: 3,
    }
    assert on_board(MIXES["small"], default_offer(A30)) == {"1g.6gb": 40, "2g.12gb": 25, WHOLE: 3}
    assert on_board(MIXES["bimodal"], default_offer(RTX_PRO_6000)) == {"1g.24gb": 70, WHOLE: 30}
    only = offers([H100], ["3g.40gb"])[0]
    assert on_board(MIXES["uniform"], only) == {"3g.40gb": 1, WHOLE: 1}


@pytest.mark.parametrize("geometry", [A30, RTX_PRO_6000])
def test_other_boards_have_a_minimum_too(geometry):
    offer = default_offer(geometry)
    jobs = stream(800, mix=on_board(MIXES["mid"], offer), load=0.8, offer=offer)
    repack, packed = (played(c, jobs, offer=offer) for c in (Contender.REPACK, Contender.PACKED))
    assert repack.excess_gpus == repack.avoidable == 0
    assert 0 <= packed.excess_gpus < 1
    assert packed.accepted_compute < repack.accepted_compute


def test_a_kind_is_called_by_its_profile_and_a_full_gpu_gpu():
    kinds = ["1g.10gb", WHOLE]
    assert [kind_named("--mix", name_of(k), kinds) for k in kinds] == kinds
    for wrong in ("", "2g.20gb"):
        with pytest.raises(ConfigError, match=r"--mix: there is no .* allowed: 1g\.10gb, gpu"):
            kind_named("--mix", wrong, kinds)
