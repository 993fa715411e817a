"""Whether each reading could be read: a sign of its own, apart from what the reading would say.

Why it exists: most states say nothing in many looks, such as a slow PCIe link of an idle GPU, or
links while MIG is on. If "could not be read" ended only with such a state in order, one failed call
would withhold a GPU until it has work, which it does not get. So it ends with the next look that
could read it, whatever it read, or that found nothing to read.

Must not know what a reading means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from driver.core.health.readings.values import NOT_ASKED, Failed, GpuReadings
from driver.core.health.signals import CannotTell, Scope, Source, Well

UNREAD: Final[Mapping[str, str]] = {
    "recovery": "recovery-action-unread",
    "uncorrected": "ecc-uncorrected-unread",
    "sram_threshold": "sram-threshold-unread",
    "rows": "row-remap-unread",
    "pages": "page-retirement-unread",
    "repairs": "repair-status-unread",
    "unrepairable": "unrepairable-memory-unread",
    "inforom_well": "inforom-unread",
    "links": "nvlink-state-unread",
    "link_errors": "nvlink-errors-unread",
    "link_failures": "nvlink-recovery-unread",
    "fabric": "fabric-unread",
    "clocks": "clocks-unread",
    "pcie": "pcie-link-unread",
    "mig": "mig-mode-unread",
    "memory": "memory-unread",
}
"""By field of the readings. `load` has none: it is read for the sake of `pcie`, which can do
without.
"""
JOINING: Final = "fabric-state"


def weigh_unread(look: GpuReadings) -> Iterator[CannotTell | Well]:
    scope, at = Scope(gpu=look.gpu), look.at
    for field, name in UNREAD.items():
        reading = getattr(look, field)
        if isinstance(reading, Failed):
            yield CannotTell(source=Source.POLL, scope=scope, name=name, at=at, detail=reading.text)
        elif reading is not NOT_ASKED:
            yield Well(source=Source.POLL, scope=scope, name=name, at=at)
    if look.fabric is None:  # none to join any more, so joining is not waited for
        yield Well(source=Source.POLL, scope=scope, name=JOINING, at=at)
