"""The local copy never goes back, whatever order our own writes and the watch arrive in."""

from itertools import pairwise

from hypothesis import given, strategies as st

from driver.kube.store import Store
from driver.ports.kube import (
    Added,
    Bookmark,
    Change,
    Deleted,
    JsonObject,
    Listing,
    Modified,
    WatchEvent,
)


def obj(name: str, version: int | str, *, uid: str = "1") -> JsonObject:
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": uid}}


def names(store: Store) -> dict[str, str]:
    return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in store.snapshot()}


def listed(version: int, *items: JsonObject) -> Store:
    store = Store()
    store.replace(Listing(items=items, version=str(version)))
    return store


def test_it_has_synced_with_the_first_list_even_if_that_is_empty() -> None:
    store = Store()
    store.feed(Added(obj("a", 1)))
    assert not store.has_synced()
    store.replace(Listing(items=(), version="1"))
    assert store.has_synced()
    assert names(store) == {}


def test_what_a_new_list_lacks_is_reported_as_gone() -> None:
    store = listed(5, obj("a", 3), obj("b", 4))
    changes: list[Change] = []
    store.subscribe(changes.append)
    store.replace(Listing(items=(obj("b", 4), obj("c", 8)), version="9"))
    assert changes == [
        Change(key=("", "a"), old=obj("a", 3), new=None),
        Change(key=("", "c"), old=None, new=obj("c", 8)),
    ]


def test_an_own_write_is_seen_at_once_and_its_echo_is_no_second_change() -> None:
    store = listed(5, obj("a", 3))
    changes: list[Change] = []
    store.subscribe(changes.append)
    store.observe(obj("a", 7))
    store.feed(Modified(obj("a", 6)))  # was under way before our write
    store.feed(Modified(obj("a", 7)))
    assert names(store) == {"a": "7"}
    assert [c.new for c in changes] == [obj("a", 7)]


def test_a_write_that_the_watch_has_passed_does_not_bring_a_deleted_object_back() -> None:
    store = listed(5)
    store.feed(Added(obj("a", 7)))
    store.feed(Deleted(obj("a", 8)))
    store.observe(obj("a", 7))
    assert names(store) == {}


def test_the_deletion_of_a_former_object_does_not_remove_its_successor() -> None:
    store = listed(5, obj("a", 3))
    store.observe(obj("a", 8, uid="2"))
    store.feed(Deleted(obj("a", 7)))
    assert names(store) == {"a": "8"}
    store.feed(Deleted(obj("a", 9, uid="2")))
    assert names(store) == {}


def test_a_list_that_is_older_than_an_own_write_does_not_undo_it() -> None:
    store = listed(5, obj("a", 3))
    store.observe(obj("b", 7))
    store.replace(Listing(items=(obj("a", 3),), version="6"))
    assert names(store) == {"a": "3", "b": "7"}
    store.replace(Listing(items=(obj("a", 3),), version="9"))
    assert names(store) == {"a": "3"}


def test_a_bookmark_moves_the_place_up_to_which_own_writes_are_old() -> None:
    store = listed(5)
    store.feed(Bookmark("20"))
    store.observe(obj("a", 7))
    assert names(store) == {}


def test_versions_that_are_no_numbers_leave_the_watch_in_charge() -> None:
    store = listed(5, obj("a", "x"))
    store.observe(obj("a", "z"))
    assert names(store) == {"a": "x"}
    store.feed(Modified(obj("a", "y")))
    assert names(store) == {"a": "y"}


def test_a_callback_that_was_undone_is_not_called_again() -> None:
    store = listed(1)
    seen: list[Change] = []
    undo = store.subscribe(seen.append)
    undo()
    undo()
    store.feed(Added(obj("a", 2)))
    assert seen == []


@given(
    writes=st.lists(
        st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 3), st.integers(0, 3)),
        max_size=25,
    )
)
def test_it_ends_where_the_server_is_and_no_object_ever_goes_back(
    writes: list[tuple[str, bool, int, int]],
) -> None:
    """Each write is observed some events late or early; the watch lags behind by a few."""
    store = listed(0)
    server: dict[str, str] = {}
    events: list[WatchEvent] = []
    waiting: list[tuple[int, JsonObject]] = []
    seen: list[Change] = []
    store.subscribe(seen.append)
    for version, (name, delete, lag, late) in enumerate(writes, 1):
        if delete and name in server:
            events.append(Deleted(obj(name, version)))
            del server[name]
        else:
            events.append((Modified if name in server else Added)(obj(name, version)))
            server[name] = str(version)
            waiting.append((version + late, obj(name, version)))
        for due, written in [w for w in waiting if w[0] <= version]:
            store.observe(written)
            waiting.remove((due, written))
        for event in events[: max(0, len(events) - lag)]:
            store.feed(event)
        del events[: max(0, len(events) - lag)]
    for event in events:
        store.feed(event)
    for _, written in waiting:
        store.observe(written)
    assert names(store) == server
    for name in "ab":
        versions = [
            int(c.new["metadata"]["resourceVersion"]) for c in seen if c.key[1] == name and c.new
        ]
        assert all(a < b for a, b in pairwise(versions))
