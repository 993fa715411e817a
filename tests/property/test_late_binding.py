"""Which sets of profiles are safe with starts that are chosen late, of all that there are."""

from itertools import combinations

from driver.core.late_binding import Safe, check
from tests.data.mig_boards import A30, H100
from tests.unit.core.test_late_binding import offer_of

EIGHT = {"1g": "1g.10gb", "me": "1g.10gb+me", "double": "1g.20gb", "2g": "2g.20gb"}
EIGHT |= {"3g": "3g.40gb", "4g": "4g.40gb", "7g": "7g.80gb"}
FOUR = ["1g.6gb", "1g.6gb+me", "2g.12gb", "4g.24gb"]


def subsets(names):
    return [s for size in range(1, len(names) + 1) for s in combinations(names, size)]


def test_on_eight_slots_23_of_127_sets_are_safe_those_with_one_partial_profile_at_most():
    safe = {s for s in subsets([*EIGHT.values()]) if check(offer_of(H100, *s)) == Safe()}
    partial = {EIGHT[k] for k in ("1g", "double", "2g", "3g", "4g")}
    assert len(subsets([*EIGHT.values()])) == 127
    assert len(safe) == 23
    assert safe == {s for s in subsets([*EIGHT.values()]) if len(partial & set(s)) <= 1}


def test_on_four_slots_11_of_15_sets_are_safe():
    safe = [s for s in subsets(FOUR) if check(offer_of(A30, *s)) == Safe()]
    assert (len(safe), len(subsets(FOUR))) == (11, 15)
    assert all(not {"1g.6gb", "2g.12gb"} <= set(s) for s in safe)
