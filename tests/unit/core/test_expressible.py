"""What is written of taints, by what the server can store."""

import pytest

from api.resource.types import Taint, TaintEffect
from driver.core.expressible import Expressed, TaintSupport, expressed
from driver.core.ids import DeviceName

HARD, ENDING, SOFT = (
    Taint(key=f"d/{effect.value}", value="", effect=effect)
    for effect in (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE, TaintEffect.NONE)
)
FREE, HELD, ENDED, MILD = map(DeviceName, ("free", "held", "ending", "soft"))
TAINTS = {FREE: (HARD, SOFT), HELD: (HARD,), ENDED: (ENDING,), MILD: (SOFT,)}


@pytest.mark.parametrize(
    ("support", "wanted"),
    [
        (TaintSupport(), Expressed(taints=TAINTS)),
        (
            TaintSupport(none=False),
            Expressed(taints={FREE: (HARD,), HELD: (HARD,), ENDED: (ENDING,)}),
        ),
        (TaintSupport(stored=False), Expressed(taints={}, left_out=frozenset({FREE, ENDED}))),
        (
            TaintSupport(stored=False, none=False),
            Expressed(taints={}, left_out=frozenset({FREE, ENDED})),
        ),
    ],
    ids=["all", "no None", "no taints", "neither"],
)
def test_a_device_is_tainted_where_that_is_stored_and_left_out_where_it_is_not(support, wanted):
    assert expressed(TAINTS, support, {HELD}) == wanted
