"""Hardware that comes late, goes, and comes back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from driver.core.choices import Choices
from driver.core.errors import DriverNotLoaded
from driver.core.snapshot import LostGpu, NodeSnapshot
from driver.plugin.discover import Discovery
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup
from tests.plugin.stubs import Library, snapshot

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
    *answers: NodeSnapshot | DriverNotLoaded, on_bus: int = 0
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
        failed=lambda _: None,
        rescan=60.0,
        choices=Choices(),
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
