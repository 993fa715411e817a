"""Boards that no one has built, and what runs on them: strategies for properties of packing."""

from hypothesis import strategies as st

from driver.core.geometry import Geometry, MigProfile, Placement
from driver.core.occupancy import NOTHING, can_take, states
from driver.core.packing import Policy, make_order
from tests.unit.core.given_mig import take


@st.composite
def geometries(draw):
    """Up to 8 slots and 4 profiles, each with any starts, compute, count and optical flow."""
    slots = draw(st.integers(1, 8))
    profiles = []
    for index in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, slots))
        starts = draw(st.sets(st.integers(0, slots - size), min_size=1, max_size=5))
        suffix = draw(st.sampled_from(["", "", "+me"]))
        profiles.append(
            MigProfile(
                index=index,
                id=index,
                name=f"{index + 1}g.{size}gb{suffix}",
                compute_slices=draw(st.integers(1, 4)),
                memory_mib=size,
                max_instances=draw(st.integers(1, len(starts))),
                placements=tuple(Placement(start=s, size=size) for s in sorted(starts)),
                ofa=draw(st.integers(0, 1)),
            )
        )
    return Geometry(slots=slots, profiles=tuple(profiles))


@st.composite
def lives(draw, boards, most=20):
    """What is in use after any sequence of allocations that the boards can hold."""
    state = NOTHING
    for _ in range(draw(st.integers(0, most))):
        now = states(boards, state)
        order = make_order(boards, NOTHING, Policy.PACKED)
        refs = [r for k in order.kinds() for r in k.feasible]
        rooms = {b.uuid: (b, s) for b, s in zip(boards, now, strict=True)}
        free = [r for r in refs if can_take(*rooms[r.gpu], r)]
        if not free:
            break
        state = take(state, draw(st.sampled_from(free)))
    return state
