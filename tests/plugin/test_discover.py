"""Hardware that comes late, goes, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from driver.core.choices import Choices
from driver.core.errors import DriverNotLoaded
from driver.core.geometry import Placement
from driver.core.ids import CdiId, ClaimUID, DeviceName, PoolName
from driver.core.ledger import Entry, Holding, Slot
from driver.core.live import Foreign
from driver.core.snapshot import InstanceFacts, LostGpu, NodeSnapshot
from driver.plugin.discover import Discovery
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup
from tests.plugin.nodes import mig_gpu, mig_snapshot, partition
from tests.plugin.stubs import Library, gpu, snapshot

Entries = Callable[[], Mapping[ClaimUID, Entry]]

UNLOADED = DriverNotLoaded("the driver is not loaded", call="nvmlInit", code=9)


class Steps:
    """Pauses that only grow."""

    def __init__(self) -> None:
        self.given = 0.0

    def next(self) -> float:
        self.given += 1
        return self.given

    def reset(self) -> None:
        self.given = 0


@dataclass
class Watched:
    reports: list[str] = field(default_factory=list)
    changes: int = 0


def discovery(
    *answers: NodeSnapshot | DriverNotLoaded, on_bus: int = 0, entries: Entries = dict
) -> tuple[Discovery, Hardware, Library, Watched]:
    seen = Watched()
    library = Library(list(answers))

    def changed() -> None:
        seen.changes += 1

    hardware = Hardware()
    hardware.subscribe(changed)
    made = Discovery(
        library,
        hardware,
        pci_gpus=lambda: on_bus,
        report=seen.reports.append,
        rescan=60.0,
        choices=Choices(),
        entries=entries,
        boot_id="boot-1",
        refuse=lambda error: pytest.fail(str(error)),
        pauses=Steps(),
        wakeup=Wakeup(),
    )
    return made, hardware, library, seen


def test_an_unloaded_driver_is_asked_again_with_growing_pauses_and_then_found() -> None:
    made, hardware, _, seen = discovery(UNLOADED, UNLOADED, snapshot(2))
    assert [made.look(), made.look()] == [1.0, 2.0]
    assert "not loaded" in hardware.problem
    assert made.look() == 60.0
    assert hardware.inventory is not None
    assert seen.reports[-1] == ""
    assert seen.changes == 1


def test_an_unchanged_node_tells_nobody() -> None:
    made, _, _, seen = discovery(snapshot(2))
    for _ in range(5):
        made.look()
    assert seen.changes == 1


def test_the_last_inventory_stays_while_the_driver_is_gone() -> None:
    made, hardware, _, seen = discovery(snapshot(2), UNLOADED)
    made.look()
    known = hardware.inventory
    made.look()
    assert hardware.inventory is known
    assert "not loaded" in seen.reports[-1]


def test_no_gpu_in_nvml_but_some_on_the_bus_is_a_failure_that_lets_handles_go() -> None:
    made, hardware, library, seen = discovery(snapshot(0), on_bus=8)
    made.look()
    assert hardware.inventory is None
    assert "NVML shows no GPU, the PCI bus shows 8" in seen.reports[-1]
    assert library.closed == 1


def test_a_node_without_gpus_is_a_node_with_an_empty_inventory() -> None:
    made, hardware, _, seen = discovery(snapshot(0))
    made.look()
    assert hardware.inventory is not None
    assert not hardware.inventory.devices
    assert seen.reports == [""]


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    lost = replace(snapshot(1), lost=(LostGpu(where="GPU 1", reason="fell off the bus"),))
    made, hardware, _, _ = discovery(lost, on_bus=2)
    made.look()
    assert hardware.inventory is not None
    assert len(hardware.inventory.devices) == 1


def test_a_gpu_that_is_lost_later_keeps_its_device_and_nobody_is_told_of_a_change() -> None:
    lost = replace(snapshot(1), lost=(LostGpu(where="GPU 1", reason="fell off the bus"),))
    made, hardware, _, seen = discovery(snapshot(2), lost, snapshot(2), on_bus=2)
    for _ in range(3):
        made.look()
    assert hardware.inventory is not None
    assert len(hardware.inventory.devices) == 2
    assert seen.changes == 1


CUT = mig_snapshot(
    mig_gpu(0, InstanceFacts(id=1, profile_id=19, placement=Placement(start=0, size=1)))
)
FOREIGN = (Foreign(gpu=gpu(0).uuid, instance=1, slots=1),)


def entry_at(start: int, *, boot: str = "boot-1") -> Entry:
    """A claim that holds one slot of GPU 0."""
    holding = Holding(
        request="r",
        pool=PoolName("p"),
        device=DeviceName(partition(0, "1g.10gb", start)),
        gpu=gpu(0).uuid,
        cdi_id=CdiId("c"),
        slot=Slot(profile="1g.10gb", start=start, size=1, ours=True),
    )
    return Entry(uid=ClaimUID("a"), namespace="ns", name="a", boot_id=boot, holdings=(holding,))


@pytest.mark.parametrize(
    ("before", "after", "foreign"),
    [
        ([], [], FOREIGN),
        ([entry_at(1)], [entry_at(1)], FOREIGN),
        ([entry_at(0)], [entry_at(0)], ()),
        ([entry_at(0, boot="boot-0")], [entry_at(0, boot="boot-0")], FOREIGN),
        ([], [entry_at(0)], ()),
        ([entry_at(0)], [], ()),
    ],
    ids=[
        "nobody's",
        "another place",
        "ours",
        "an earlier boot's",
        "made meanwhile",
        "destroyed meanwhile",
    ],
)
def test_an_instance_is_foreign_if_no_claim_explains_it_while_it_is_read(
    before: list[Entry], after: list[Entry], foreign: tuple[Foreign, ...]
) -> None:
    told = [before, after]
    made, hardware, _, _ = discovery(CUT, entries=lambda: {e.uid: e for e in told.pop(0)})
    made.look()
    assert hardware.foreign == foreign


def test_what_a_claim_left_after_the_reading_is_not_taken_for_foreign() -> None:
    ledger = {ClaimUID("a"): entry_at(0)}
    made, hardware, _, seen = discovery(CUT, entries=lambda: dict(ledger))
    made.look()
    ledger.clear()
    assert not hardware.foreign
    made.look()  # it is still there: now nobody knows whose it is
    assert hardware.foreign == FOREIGN
    assert seen.changes == 2


def test_a_geometry_that_cannot_be_read_for_once_withdraws_nothing() -> None:
    whole = mig_snapshot(mig_gpu(0))
    blind = replace(whole.gpus[0].mig, geometry=None)
    made, hardware, _, seen = discovery(whole, mig_snapshot(replace(whole.gpus[0], mig=blind)))
    made.look()
    made.look()
    assert hardware.inventory is not None
    assert len(hardware.inventory.devices) == 1 + 17
    assert seen.changes == 1


def test_a_choice_that_does_not_fit_the_hardware_is_refused() -> None:
    refused: list[str] = []
    made, hardware, _, seen = discovery(mig_snapshot(mig_gpu(0)))
    made._choices = Choices(profiles=("1g.5gb",))
    made._refuse = lambda error: refused.append(str(error))
    made.look()
    assert hardware.inventory is None
    assert len(refused) == 1
    assert "1g.5gb" in refused[0]
    assert seen.reports[-1] == refused[0]


@dataclass
class Idling(Library):
    """Says how long nobody asked for anything, and when it is let go of ends the loop."""

    pauses: list[float] = field(default_factory=list)
    on_close: Callable[[], None] = lambda: None

    def close_idle(self, seconds: float) -> float:
        rest = self.pauses.pop(0)
        if not rest:
            self.on_close()
        return rest or seconds


@pytest.mark.parametrize(("idle", "asked"), [(0.0, 0), (5.0, 3)], ids=["never", "after 5 s"])
def test_nvml_is_let_go_of_between_looks_when_nobody_asks_for_it(idle: float, asked: int) -> None:
    made, hardware, _, _ = discovery(snapshot(1))
    stop, wakeup = threading.Event(), Wakeup()
    library = Idling([snapshot(1)], pauses=[0.01, 0.01, 0])

    def end() -> None:
        stop.set()
        wakeup.wake()

    library.on_close = end
    made._library, made._wakeup, made._idle = library, wakeup, idle
    if not idle:
        hardware.subscribe(end)
    made.run(stop)
    assert 3 - len(library.pauses) == asked
    assert library.closed == 1


def test_who_mended_the_ledger_is_not_kept_waiting_for_the_next_look() -> None:
    made, *_ = discovery(CUT)
    stop, looks = threading.Event(), []

    def look() -> float:
        looks.append(1)
        if len(looks) > 1:
            stop.set()
        made.again()
        return 3600.0

    made.look = look  # type: ignore[method-assign]
    made.run(stop)
    assert len(looks) == 2
