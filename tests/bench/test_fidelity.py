"""Playbooks of allocations on two H100, and states of a pool."""

import math

import pytest

from driver.core.inventory import build_inventory
from driver.core.names import gpu_device_names, partition_name
from driver.core.packing import Policy
from tests.bench.fidelity import FAR_BEHIND, Pools, Taken, fidelity, gaps, lags, percentile
from tests.bench.layouts import snapshot

INVENTORY = build_inventory(snapshot("n"))
GPUS = [gpu_device_names(INVENTORY.gpus)[b.uuid] for b in INVENTORY.boards]


def small(gpu, start):
    return partition_name(GPUS[gpu], "1g.10gb", start)


def play(*events):
    taken = [Taken(claim=claim, device=device) for claim, device in events]
    return lags(INVENTORY, taken, Policy.PACKED)


def test_the_policys_own_choices_have_no_lag():
    assert play(("a", small(0, 6)), ("b", GPUS[7]), ("c", GPUS[6])) == (0, 0, 0)


def test_a_choice_of_the_state_before_the_last_event_is_one_late():
    assert play(("a", small(0, 6)), ("b", GPUS[7]), ("b", None), ("c", GPUS[6])) == (0, 0, 1)


def test_an_order_that_has_not_heard_of_two_events_is_two_late():
    # With slots 0 and 1 taken the policy takes slot 2 next; an empty GPU's order says slot 6.
    two = partition_name(GPUS[0], "2g.20gb", 0)
    assert play(("a", two), ("b", GPUS[7]), ("c", small(0, 6)))[1:] == (0, 2)
    assert play(("a", two), ("b", GPUS[7]), ("c", small(0, 2)))[1:] == (0, 0)


def test_what_was_never_a_choice_counts_as_far_behind():
    assert play(("a", small(5, 0))) == (FAR_BEHIND,)


def test_a_release_makes_the_device_a_choice_again():
    assert play(("a", small(0, 6)), ("a", None), ("b", small(0, 6))) == (0, 0)


def test_an_allocation_has_the_time_since_the_event_before_it():
    events = (("a", small(0, 6), 1.0), ("a", None, 3.0), ("b", GPUS[7], 3.5))
    taken = [Taken(claim=claim, device=device, at=at) for claim, device, at in events]
    assert gaps(taken) == (math.inf, 0.5)


def test_fidelity_is_the_share_without_lag():
    assert fidelity((0, 0, 1, 0)) == 0.75


@pytest.mark.parametrize(
    ("values", "share", "is_"),
    [((0,) * 99 + (5,), 0.99, 0), ((0,) * 98 + (5, 5), 0.99, 5), ((1, 2, 3), 1.0, 3)],
)
def test_percentile(values, share, is_):
    assert percentile(values, share) == is_


def test_a_pool_counts_only_from_its_first_complete_state():
    pools = Pools()
    for name, pool in (("a", (1, 2)), ("b", (1, 2)), ("a", (1, 2))):
        pools.see(name, pool)
    assert (pools.incomplete, pools.writes) == (0, 1)


@pytest.mark.parametrize("pool", [(2, 2), None, (1, 3)], ids=["newer", "gone", "other count"])
def test_a_pool_is_incomplete_while_a_slice_is_missing_behind_or_at_odds(pool):
    pools = Pools()
    for name, state in (("a", (1, 2)), ("b", (1, 2)), ("b", pool)):
        pools.see(name, state)
    assert pools.incomplete == 1
