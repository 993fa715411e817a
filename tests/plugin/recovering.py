"""A node in memory with its recovery, a clock, and claims that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from driver.core.errors import KubeUnavailable
from driver.core.ids import ClaimUID
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.turns import Turns
from driver.plugin.recovering.facts import FactFinder
from driver.plugin.recovering.lookup import ClaimLookup
from driver.plugin.recovering.recovery import Recovery
from driver.plugin.served import ServedVersion
from driver.plugin.supervise import Wakeup
from driver.ports.events import Reason
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.kubelet import ClaimRef
from tests.plugin.nodes import MigNode
from tests.plugin.stubs import DRIVER, NODE, claim

GRACE = 120.0


@dataclass
class Told:
    repairs: list[tuple[str, str]] = field(default_factory=list)
    events: list[Reason] = field(default_factory=list)
    orphans: int = -1
    changes: int = 0

    def repaired(self, repair: str, outcome: str) -> None:
        self.repairs.append((repair, outcome))

    def set_orphaned_claims(self, count: int) -> None:
        self.orphans = count

    def take(self) -> list[tuple[str, str]]:
        taken, self.repairs = self.repairs, []
        return taken


class Node(MigNode):
    """With its recovery. `now` is its clock."""

    def __init__(self, *, boot: str = "boot-1", of: MigNode | None = None) -> None:
        super().__init__(boot=boot, of=of)
        self.told = Told()
        self.now = 1000.0
        self.followed: dict[ClaimUID, JsonObject] = {}
        self.recovery = self.recovery_of(self.hardware, boot)

    def recovery_of(self, hardware: Hardware, boot: str) -> Recovery:
        identity = Identity(driver=DRIVER, node=NODE, boot_id=boot)
        return Recovery(
            facts=FactFinder(
                identity=identity,
                hardware=hardware,
                ledger=self.ledger,
                cdi=self.cdi,
                driver_root=self.root,
                library=self.mig,
            ),
            lookup=ClaimLookup(
                cast("KubeApi", self.api),
                ServedVersion(lambda: "v1"),
                identity=identity,
                followed=lambda: self.followed,
            ),
            hardware=hardware,
            ledger=self.ledger,
            cdi=self.cdi,
            library=self.mig,
            partitions=Partitions(self.library, wait=lambda _: True),
            locks=GpuLocks(self.locks, patience=0),
            turns=Turns(self.locks),
            metrics=self.told,
            tell=lambda reason, _: self.told.events.append(reason),
            pause=300.0,
            grace=GRACE,
            wakeup=Wakeup(),
            on_change=self._changed,
            clock=lambda: self.now,
        )

    def _changed(self) -> None:
        self.told.changes += 1

    def run(self, name: str, *devices: str) -> ClaimRef:
        """A prepared claim."""
        ref = self.add(claim(name, *devices))
        assert isinstance(self.prepare(ref), tuple)
        return ref

    def delete(self, ref: ClaimRef) -> None:
        del self.api.claims[ref.namespace, ref.name]

    def after(self, seconds: float) -> list[tuple[str, str]]:
        """What a look does then."""
        self.now += seconds
        self.recovery.look()
        return self.told.take()

    def is_empty(self) -> bool:
        """Whether nothing of any claim is left, on the first GPU and in the folders."""
        return not (self.entries() or self.cdi.specs or self.instances())

    @contextmanager
    def away(self) -> Iterator[None]:
        """The API does not answer."""
        self.api.failure = KubeUnavailable("away", what="get")
        yield
        self.api.failure = None
