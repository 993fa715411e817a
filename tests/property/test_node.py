"""A node over time: claims, foreign instances, lost and sick GPUs, plugins started with other
settings; every round as the publisher makes it.

The scheduler's side is that of the API: it sees only what is stored, and remembers what it gave
away. Whatever happens, it may be misled about nothing: no device in use vanishes or changes what it
takes, no two claims overlap, no GPU in use or sick is reserved as a whole one, and an order alone
is never a new generation.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings, strategies as st

from driver.core.choices import Choices
from driver.core.ids import ClaimUID
from driver.core.ledger import conflict
from driver.core.live import Foreign, live_state, withholding_taints
from driver.core.occupancy import Partition
from tests.data.mig_boards import H100
from tests.property.living_node import (
    ALL,
    CHOICES,
    FEWER,
    GPUS,
    KINDS,
    RESTARTS,
    Node,
    as_bytes,
    entry_of,
    happen,
    inventory_of,
    slots_of,
)
from tests.unit.core.given import DRIVER

WHICH = st.integers(0, 30)
CLAIMS = (
    st.tuples(st.just("allocate"), st.sampled_from(KINDS)),
    st.tuples(st.just("allocate"), st.sampled_from(KINDS)),
    st.tuples(st.just("prepare"), WHICH),
    st.tuples(st.just("end"), WHICH),
)
SICK = st.tuples(st.just("sick"), st.integers(0, 11))
EVENTS = st.one_of(
    *CLAIMS,
    SICK,
    st.tuples(st.just("delete"), WHICH),
    st.tuples(st.just("foreign"), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("restart"), st.sampled_from(RESTARTS)),
)
QUIET = st.one_of(
    *CLAIMS,
    SICK,
    st.tuples(st.just("restart"), st.sampled_from([Choices(), *FEWER])),
)


@settings(max_examples=20)
@given(
    st.sampled_from(CHOICES), st.lists(st.tuples(EVENTS, st.booleans()), min_size=5, max_size=20)
)
def test_whatever_happens_no_reader_is_misled_and_no_two_claims_overlap(choices, events):
    node = Node(choices)
    for (what, which), heard in events:
        happen(node, what, which)
        if heard:
            node.publish()
    node.publish()
    assert as_bytes(node.pool()) == as_bytes(node.pool())
    node.fill()
    for one, other in combinations((slots_of(n) for n in node.allocated), 2):
        assert one[0] != other[0] or not one[1] & other[1]


@settings(max_examples=20)
@given(st.lists(QUIET, min_size=3, max_size=20))
def test_after_each_quiet_round_a_used_gpu_comes_before_an_idle_one(events):
    """And whole GPUs are taken from the last idle one down."""
    node = Node(Choices())
    for what, which in events:
        used = {ALL[n].gpu.uuid for n in node.allocated}
        before = dict(node.allocated)
        happen(node, what, which)
        for name in node.allocated.keys() - before.keys():
            check_packed(node, ALL[name], used, before)
        node.publish()


def check_packed(node, device, used, before):
    boards = {b.uuid: b for b in node.inventory.boards}
    if not isinstance(device.ref, Partition):
        idle = [g.uuid for g in GPUS if g.uuid not in used and not node.sick.get(g.uuid)]
        assert device.gpu.uuid == idle[-1]
        return
    if device.gpu.uuid in used:
        return
    masks = Counter[str](node.sick)
    for uuid, mask in map(slots_of, before):
        masks[uuid] |= mask
    for uuid in used:
        offer = boards[uuid].offer
        for profile in offer.profiles if offer else ():
            if profile.name == device.profile.name:
                # Slots are all that limits these boards, but for 7 compute slices on 8 slots.
                room = [p for p in profile.placements if not p.mask & masks[uuid]]
                assert not room, f"{device.name} opened an idle GPU although {uuid} has room"


@settings(max_examples=30)
@given(st.data())
def test_an_overlap_in_the_ledger_is_exactly_an_overlap_of_slots(data):
    devices = inventory_of(GPUS, Choices()).devices
    one, other = (data.draw(st.sampled_from(sorted(devices))) for _ in range(2))
    entries = [
        replace(entry_of(inventory_of(GPUS, Choices()), name), uid=ClaimUID(uid))
        for uid, name in (("old", one), ("new", other))
    ]
    geometric = devices[one].gpu == devices[other].gpu and devices[one].slots & devices[other].slots
    assert bool(conflict(entries[1], entries[:1])) is bool(geometric)


@settings(max_examples=20)
@given(st.integers(0, 1), st.sampled_from(H100.profiles), st.data())
def test_foreign_instances_are_withheld_and_taint_no_more_than_they_overlap(number, profile, data):
    start = data.draw(st.sampled_from(profile.starts))
    foreign = (Foreign(gpu=GPUS[number].uuid, instance=1, slots=profile.mask(start)),)
    inventory = inventory_of(GPUS, Choices())
    live = live_state(inventory, (), (), foreign)
    assert live.withheld == {GPUS[number].uuid: profile.mask(start)}
    tainted = withholding_taints(inventory, live, foreign, Choices(), driver=DRIVER)
    overlapping = {
        name
        for name, d in inventory.devices.items()
        if d.gpu is GPUS[number] and d.slots & profile.mask(start)
    }
    assert tainted.keys() == overlapping
