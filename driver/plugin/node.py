"""What this node is and has, shared by the threads of the plugin.

One writer (discovery), several readers (preparation, publishing). A reader takes the inventory once
and works on that value; it is replaced, never changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from driver.core.ids import PoolName
from driver.core.inventory import Inventory
from driver.core.live import Foreign
from driver.core.names import pool_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who we are to the cluster. `boot_id` is the kernel's."""

    driver: str
    node: str
    boot_id: str

    @property
    def pool(self) -> PoolName:
        return pool_name(self.node)


class Hardware:
    """The latest inventory, or why there is none yet."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._read = False
        self._inventory: Inventory | None = None
        self._foreign: tuple[Foreign, ...] = ()
        self._problem = "the GPUs have not been read yet"
        self._told: list[Callable[[], None]] = []

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Called, in the thread of discovery, when the inventory is another one."""
        self._told.append(on_change)

    @property
    def inventory(self) -> Inventory | None:
        with self._lock:
            return self._inventory

    @property
    def foreign(self) -> tuple[Foreign, ...]:
        """Instances that nobody here made, as of the reading that gave the inventory."""
        with self._lock:
            return self._foreign

    @property
    def problem(self) -> str:
        """Why the hardware cannot be read now; empty where the inventory is current."""
        with self._lock:
            return self._problem

    def found(self, inventory: Inventory, foreign: tuple[Foreign, ...] = ()) -> bool:
        """Take in what discovery read; whether it differs from what was known. As long as nothing
        does, the inventory is the same object, so that readers need not look again.
        """
        with self._lock:
            changed = (inventory, foreign) != (self._inventory, self._foreign)
            if changed:
                self._inventory, self._foreign = inventory, foreign
            self._problem = ""
            self._has_read()
        if changed:
            for on_change in self._told:
                on_change()
        return changed

    def failed(self, problem: str) -> bool:
        """Keep the last inventory: what was handed out stays; whether the problem is news."""
        with self._lock:
            news, self._problem = problem != self._problem, problem
            self._has_read()
            return news

    def wait_read(self, timeout: float) -> bool:
        """Whether the hardware was asked at least once, with whatever answer."""
        with self._lock:
            return self._lock.wait_for(lambda: self._read, timeout)

    def _has_read(self) -> None:
        self._read = True
        self._lock.notify_all()
