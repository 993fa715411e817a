"""What is withheld, for whatever reason, as an order must know it."""

from api.resource.types import Taint, TaintEffect
from driver.core.choices import Choices
from driver.core.inventory import build_inventory
from driver.core.live import Foreign, live_state
from driver.core.occupancy import NOTHING
from driver.core.withheld import withhold
from tests.unit.core.given import DRIVER, cut, part, snapshot, uuid

NODE = build_inventory(snapshot(cut(0), cut(1)))
ONE = part(0, "1g.10gb", 6)


def taint(effect):
    return (Taint(key=f"{DRIVER}/fault", value="x", effect=effect),)


def names(live):
    return {name for name, d in NODE.devices.items() if d.ref in live.tainted}


def withheld(sick, *, live=NOTHING, foreign=(), choices=None):
    return withhold(NODE, live, foreign, sick, choices or Choices(), driver=DRIVER)


def test_a_device_is_out_of_the_order_for_every_taint_but_one_that_only_informs():
    sick = {
        ONE: taint(TaintEffect.NO_SCHEDULE),
        part(1, "1g.10gb", 0): taint(TaintEffect.NO_EXECUTE),
        part(1, "1g.10gb", 1): taint(TaintEffect.NONE),
        "gpu-0000000f": taint(TaintEffect.NO_SCHEDULE),
    }
    taints, live = withheld(sick)
    assert taints == sick
    assert names(live) == {ONE, part(1, "1g.10gb", 0)}


def test_what_is_foreign_sick_or_kept_is_told_with_all_of_its_reasons():
    foreign = (Foreign(gpu=uuid(0), instance=1, slots=1 << 6),)
    state = live_state(NODE, (), (), foreign)
    sick = {ONE: taint(TaintEffect.NO_SCHEDULE)}
    taints, live = withheld(sick, live=state, foreign=foreign, choices=Choices(min_whole_gpus=1))
    assert [t.key.rpartition("/")[2] for t in taints[ONE]] == ["foreign", "fault"]
    assert names(live) == taints.keys()
    assert {n for n in taints if n.startswith("gpu-00000001")} == {
        n for n in NODE.devices if n.startswith("gpu-00000001-mig-")
    }


def test_a_sick_gpu_is_none_that_is_kept_whole():
    sick = {n: taint(TaintEffect.NO_SCHEDULE) for n in NODE.devices if n.startswith("gpu-00000001")}
    taints, _ = withheld(sick, choices=Choices(min_whole_gpus=1))
    kept = {n for n, found in taints.items() if any(t.value == "whole" for t in found)}
    assert kept == {n for n in NODE.devices if n.startswith("gpu-00000000-mig-")}
