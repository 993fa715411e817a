"""How scattered a node is, what it still holds, with how little it could do, what frees room."""

from itertools import combinations_with_replacement

import pytest

from driver.core.fragmentation import repacked, score, still_fits
from driver.core.ids import ClaimUID
from driver.core.minimum import minimum_gpus
from driver.core.occupancy import NOTHING, Live
from driver.core.packing import WHOLE
from driver.core.release import smallest_release
from tests.data.mig_boards import A30, A100_40, H100, RTX_PRO_6000
from tests.unit.core.given_mig import live, mixed, node, spell

ONE_EACH = live(*(f"{n}:1g.10gb@6" for n in range(4)))


def test_an_empty_a_full_and_a_packed_node_are_not_fragmented():
    assert score(node(4), NOTHING) == 0
    assert score(node(2), live("0", "1")) == 0
    assert score(node(4), live("0:3g.40gb@4", "0:1g.10gb@0", "0:1g.10gb@1")) == 0
    assert score((), NOTHING) == 0


def test_one_small_claim_on_each_gpu_is_worse_than_on_half_of_them():
    two = live("0:1g.10gb@6", "1:1g.10gb@6", "0:1g.10gb@4", "1:1g.10gb@4")
    assert score(node(4), ONE_EACH) > score(node(4), two) > 0


def test_a_bad_start_is_fragmentation_too():
    assert score(node(1), live("0:1g.10gb@3")) > score(node(1), live("0:1g.10gb@6")) == 0


def test_repacking_keeps_every_claim_and_what_cannot_move():
    before = live("0:1g.10gb@6", "1:3g.40gb@4", "2:1g.10gb@0", "3", withheld={0: 1})
    after = repacked(node(4), before)
    assert sorted(p.profile for p in after.partitions) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    assert len({p.gpu for p in after.partitions}) == 1
    assert (after.whole, after.withheld) == (before.whole, before.withheld)
    kept = live("0:1g.10gb+me@6", "1:1g.10gb@6")
    assert live("0:1g.10gb+me@6").partitions < repacked(node(2), kept).partitions


def test_what_still_fits_is_counted_kind_by_kind():
    state = live("0:1g.10gb@6", "1:4g.40gb@0")
    assert still_fits(node(2), state) == {
        "1g.10gb": 6 + 3,
        "1g.20gb": 3 + 2,
        "2g.20gb": 3 + 1,
        "3g.40gb": 1 + 1,
        "4g.40gb": 1,
        WHOLE: 0,
    }
    assert still_fits(mixed(None, A30), NOTHING) == {"1g.6gb": 4, "2g.12gb": 2, WHOLE: 2}


def test_a_media_variant_still_fits_once():
    boards = node(2, H100, ["1g.10gb", "1g.10gb+me"])
    assert still_fits(boards, live("0:1g.10gb+me@6"))["1g.10gb+me"] == 1


def by_brute_force(board, kinds):
    """The multisets that fit one GPU, as sorted tuples, by plain recursion."""
    parts = [(k, board.profile(k).mask(s)) for k in kinds for s in board.profile(k).starts]
    found = set()

    def grow(left, chosen, mask):
        found.add(tuple(sorted(chosen)))
        for i, (kind, slots) in enumerate(left):
            if not slots & mask:
                grow(left[i + 1 :], [*chosen, kind], mask | slots)

    grow(parts, [], 0)
    return found


def least(wanted, one_gpu):
    """The fewest GPUs for a sorted tuple: by the largest first, every multiset that has it."""
    if not wanted:
        return 0
    best = len(wanted)
    for fits in one_gpu:
        if wanted[-1] in fits:
            left = list(wanted)
            for kind in fits:
                if kind in left:
                    left.remove(kind)
            if len(left) < len(wanted):
                best = min(best, 1 + least(tuple(left), one_gpu))
    return best


@pytest.mark.parametrize("board", [A100_40, A30, RTX_PRO_6000], ids=["A100", "A30", "RTX"])
def test_the_minimum_is_that_of_brute_force(board):
    kinds = [p.name for p in board.base]
    one_gpu = by_brute_force(board, kinds)
    biggest = {s for s in one_gpu if not any(set_contains(t, s) for t in one_gpu)}
    for size in range(5):
        for wanted in combinations_with_replacement(sorted(kinds), size):
            counts = {k: wanted.count(k) for k in kinds}
            assert minimum_gpus(board, counts) == least(wanted, biggest), wanted


def set_contains(large, small):
    left = list(large)
    for kind in small:
        if kind not in left:
            return False
        left.remove(kind)
    return len(large) > len(small)


@pytest.mark.parametrize(
    ("counts", "gpus"),
    [
        ({"1g.10gb": 56}, 8),
        ({"1g.10gb": 57}, 9),
        ({"3g.40gb": 15, "4g.40gb": 1}, 8),
        ({"4g.40gb": 8, "3g.40gb": 8}, 8),
        ({"4g.40gb": 8, "3g.40gb": 8, "1g.10gb": 1}, 9),
        ({"7g.80gb": 2, "2g.20gb": 1}, 3),
        ({"1g.20gb": 4, "1g.10gb": 1}, 2),
    ],
)
def test_the_closed_form_on_many_gpus(counts, gpus):
    assert minimum_gpus(H100, counts) == gpus
    assert minimum_gpus(H100, counts, whole=3) == gpus + 3


def test_variants_are_searched_with_their_engines():
    assert minimum_gpus(H100, {"1g.10gb": 6, "1g.10gb+me": 1}) == 1
    assert minimum_gpus(H100, {"1g.10gb": 2, "1g.10gb+me": 3}) == 3
    assert minimum_gpus(RTX_PRO_6000, {"1g.24gb+me.all": 1, "1g.24gb-me": 3}) == 1
    assert minimum_gpus(RTX_PRO_6000, {"1g.24gb+me.all": 1, "1g.24gb": 1}) == 2


def test_a_search_that_would_take_too_long_says_so(monkeypatch):
    monkeypatch.setattr("driver.core.minimum.MOST_STATES", 0)
    assert minimum_gpus(H100, {"1g.10gb": 1, "1g.10gb+me": 2, "3g.40gb": 4}) is None


def claims(**held):
    return {ClaimUID(uid): live(*refs.split()).partitions for uid, refs in held.items()}


def all_of(held):
    return Live(partitions=frozenset().union(*held.values()))


def release(boards, kind, held, state=None):
    """The device that gets free, and whose end frees it."""
    found = smallest_release(boards, state or all_of(held), held, kind)
    return None if found is None else (*spell([found.device]), "".join(sorted(found.claims)))


def test_the_smallest_claim_in_the_way_is_named():
    held = claims(a="0:1g.10gb@0 0:1g.10gb@1", b="0:1g.10gb@4", c="0:1g.10gb@5")
    assert release(node(1), "3g.40gb", held) == ("0@0", "a")
    assert release(node(1), WHOLE, held) == ("0", "abc")


def test_of_equally_many_claims_those_on_fewer_slots_are_named():
    held = claims(a="0:3g.40gb@0", b="1:1g.10gb@3")
    assert release(node(2), "4g.40gb", held) == ("1@0", "b")


def test_nothing_must_end_for_what_fits_now():
    assert release(node(2), "3g.40gb", {}) == ("0@4", "")
    assert release(node(2), WHOLE, {}) == ("1", "")


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("4g.40gb", live(withheld={0: 0x0F})),
        (WHOLE, live(withheld={0: 0x80})),
        (WHOLE, live("0:1g.10gb@6")),
        ("1g.10gb", live("0")),
        ("1g.5gb", NOTHING),
    ],
    ids=["withheld slots", "withheld board", "foreign claim", "foreign full GPU", "no profile"],
)
def test_what_no_claim_holds_never_ends(kind, state):
    assert release(node(1), kind, {}, state) is None


def test_a_claim_that_holds_the_engine_must_end_although_slots_are_free():
    boards = node(1, H100, ["1g.10gb", "1g.10gb+me"])
    held = claims(a="0:1g.10gb@0", b="0:1g.10gb+me@6")
    device, ended = release(boards, "1g.10gb+me", held)
    assert ended == "b"
    assert device != "0@0"
