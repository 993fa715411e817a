"""Whatever is stored, one round of planned writes makes it what is wanted, and misleads no reader.

The histories are those of a driver that crashes between writes, of a kubelet that wipes slices, of
people who edit them, and of a Node that is created again.
"""

from dataclasses import dataclass

from hypothesis import given, settings, strategies as st

from api.resource.codec import NodeOwner
from api.resource.types import Pool
from driver.core.diff import Put, plan_writes
from driver.kube.versions import PREFERRED
from tests.property.server import Server, View
from tests.property.strategies import DRIVER, NODE, OWNERS, POOL, pools

ME = NodeOwner(name=NODE, uid="node-a")


def content(pool: Pool) -> View:
    return frozenset((s.name, s) for s in pool.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A pool is wanted; the driver crashes after `lives` writes; then `wiped` slices disappear."""

    wanted: Pool
    lives: int
    owner: NodeOwner = ME
    wiped: frozenset[int] = frozenset()
    edited: int | None = None


CRASHES = st.integers(0, 6)
ROUNDS = st.builds(
    Round,
    wanted=pools(),
    lives=CRASHES,
    owner=OWNERS,
    wiped=st.frozensets(st.integers(0, 3), max_size=2) | st.just(frozenset(range(5))),
    edited=st.none() | st.integers(0, 3),
)


def run(server: Server, wanted: Pool, owner: NodeOwner, lives: int, seen: set[View]) -> int:
    """Apply a plan, as far as this life goes; after every single write look as a reader does."""
    fine = {*seen, server.view(POOL), content(wanted), None}
    before = server.newest(POOL)
    plan = plan_writes(wanted, server.stored(), owner=owner)
    for write in plan[:lives]:
        server.apply(write, wanted, owner)
        assert server.view(POOL) in fine, f"a reader sees a pool that nobody wanted, after {write}"
        assert not isinstance(write, Put) or write.generation >= before
    seen.add(content(wanted))
    return len(plan)


def disturb(server: Server, each: Round) -> None:
    names = sorted(server.objects)
    for position in each.wiped:
        if position < len(names):
            del server.objects[names[position]]
    if (
        each.edited is not None
        and each.edited < len(names)
        and names[each.edited] in server.objects
    ):
        obj = server.objects[names[each.edited]]
        obj["spec"].pop("sharedCounters", None)
        obj["spec"]["devices"] = [{"name": "foreign", "bindsToNode": True}]
        server.put(obj)


def settled(server: Server, wanted: Pool, owner: NodeOwner) -> None:
    """As wanted, complete, ours, and not to be written again."""
    assert server.view(POOL) == content(wanted)
    assert {s.owner for s in server.stored()} == {owner}
    assert len(server.objects) == len(wanted.slices)
    assert plan_writes(wanted, server.stored(), owner=owner) == []


@settings(max_examples=200)
@given(st.lists(ROUNDS, max_size=4), pools(), OWNERS, st.sampled_from(PREFERRED))
def test_any_history_converges_in_one_round_and_misleads_no_reader(history, wanted, owner, version):
    server, seen = Server(version), set[View]()
    for each in history:
        run(server, each.wanted, each.owner, each.lives, seen)
        disturb(server, each)
    before = server.newest(POOL)
    run(server, wanted, owner, 99, seen)
    settled(server, wanted, owner)
    assert server.newest(POOL) >= before


@settings(max_examples=150)
@given(pools(), pools(), CRASHES, st.data())
def test_a_crash_after_any_write_is_made_good_by_the_next_start(first, second, lives, data):
    """Also by a start that wants the first pool again: the way back is a way like any other."""
    server, seen = Server(), set[View]()
    run(server, first, ME, 99, seen)
    run(server, second, ME, lives, seen)
    wanted = data.draw(st.sampled_from([first, second]))
    run(server, wanted, ME, 99, seen)
    settled(server, wanted, ME)


@settings(max_examples=100)
@given(pools(), pools())
def test_the_writes_are_as_few_as_the_contract_allows(first, second):
    """Every slice once if the generation must rise, else only what differs."""
    server = Server()
    run(server, first, ME, 99, set())
    old = {s.name: s for s in first.slices}
    new = {s.name: s for s in second.slices}
    changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
    writes = run(server, second, ME, 99, {content(first)})
    if old.keys() == new.keys() and len(changed) <= 1:
        assert (writes, server.newest(POOL)) == (len(changed), 1)
    else:
        assert (writes, server.newest(POOL)) == (len(old.keys() | new.keys()), 2)


@settings(max_examples=100)
@given(pools(), st.frozensets(st.integers(0, 3)))
def test_what_a_kubelet_wiped_comes_back_with_as_many_writes_as_slices_are_gone(pool, wiped):
    server = Server()
    run(server, pool, ME, 99, set())
    gone = [s.name for i, s in enumerate(pool.slices) if i in wiped]
    for name in gone:
        del server.objects[name]
    assert run(server, pool, ME, 99, set()) == len(gone)
    settled(server, pool, ME)


@settings(max_examples=50)
@given(pools())
def test_a_new_node_object_takes_over_every_slice(pool):
    server, again = Server(), NodeOwner(name=NODE, uid="node-again")
    run(server, pool, ME, 99, set())
    assert run(server, pool, again, 99, {content(pool)}) == len(pool.slices)
    settled(server, pool, again)


@settings(max_examples=50)
@given(pools(), pools())
def test_slices_of_another_pool_make_room_even_where_they_bear_our_names(ours, theirs):
    server = Server()
    old = Pool(driver=DRIVER, node=NODE, name="old/tessera", slices=theirs.slices)
    run(server, old, ME, 99, {server.view("old/tessera")})
    run(server, ours, ME, 99, set())
    settled(server, ours, ME)
