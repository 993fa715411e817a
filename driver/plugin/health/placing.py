"""When the kernel's log can be read so that an address in it means a GPU.

Why it exists: a fault that came while no plugin ran stands there when we start, before NVML has
answered. Read too early it would be nobody's, and its line would not be read again. So the GPUs are
waited for; where NVML does not answer, those that the node had before do. A node that never had any
is read after a while all the same, and its place in the log is kept only when there are GPUs: then
all is read again.

Must not know records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from driver.plugin.health.custody import Custody
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup

PATIENCE: Final = 5.0
"""Seconds for NVML, where the GPUs are known from before; a fault must not wait for what hangs."""
LONGEST: Final = 30.0
"""Seconds where they are not."""


class Placing:
    """Both methods are for the thread that reads the log."""

    def __init__(
        self,
        hardware: Hardware,
        custody: Custody,
        *,
        wakeup: Wakeup,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hardware = hardware
        self._custody = custody
        self._wakeup = wakeup
        self._uptime = uptime
        hardware.subscribe(wakeup.wake)

    def wait(self, stop: threading.Event) -> None:
        """Until the log can be read."""
        began = self._uptime()
        while not stop.is_set() and (rest := self._rest(self._uptime() - began)) > 0:
            self._wakeup.wait(rest)

    def keeps(self) -> bool:
        """Whether what was read is done with: it meant something, and is stored by us."""
        known = self._hardware.inventory is not None or bool(self._custody.evidence.gpus)
        return known and self._custody.leading

    def _rest(self, waited: float) -> float:
        if self._hardware.inventory is not None:
            return 0.0
        return (PATIENCE if self._custody.evidence.gpus else LONGEST) - waited
