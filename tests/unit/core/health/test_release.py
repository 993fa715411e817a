"""That we let go of NVML ourselves is shown, and held against nobody."""

from driver.core.health.items import RELEASED
from driver.core.health.judge import State
from driver.core.health.signals import Source
from driver.core.ids import DeviceName
from tests.unit.core.health.given_health import Node, cannot_tell, well


def test_our_own_release_withholds_nothing_however_long_and_hides_nothing() -> None:
    node = Node().live(
        cannot_tell(RELEASED, 10, on=None),
        cannot_tell(RELEASED, 10, on=None, by=Source.EVENTS),
        cannot_tell(RELEASED, 3610, on=None),
    )
    late = node.at(3610)
    assert {j.state for j in late.devices.values()} == {State.READY}
    assert [r.item.name for r in late.node.reasons] == [RELEASED, RELEASED]
    assert late.due is None
    # What could not be told before the window does not become well by it.
    node.live(cannot_tell("nvml-hangs", 10))
    assert node.at(3700).devices[DeviceName("whole-0")].state is State.UNKNOWN
    node.live(*(well(RELEASED, 3611, on=None, by=by) for by in (Source.POLL, Source.EVENTS)))
    assert node.names() == {"nvml-hangs"}
