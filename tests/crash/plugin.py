"""The plugin's use cases over real adapters, as `driver.plugin.app` joins them, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from driver.core.ids import ClaimUID
from driver.core.inventory import Inventory, build_inventory
from driver.core.ledger import Entry
from driver.core.snapshot import PciAddress
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.nvml.boards import Boards
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.claims import Claims
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.turns import Turns
from driver.plugin.recovering.facts import FactFinder
from driver.plugin.recovering.lookup import ClaimLookup
from driver.plugin.recovering.recovery import Recovery
from driver.plugin.served import ServedVersion
from driver.plugin.supervise import Supervisor
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.kubelet import ClaimRef, Failure, PrepareAnswer
from driver.ports.nvml import MigLibrary
from driver.state.cdi_store import CdiDir
from driver.state.driver_root import DriverTree, Roots
from driver.state.ledger import LedgerDir
from driver.state.named_locks import NamedLocks
from tests.crash.faults import CountedFiles, CountedMig, Steps
from tests.crash.world import NODE, World
from tests.plugin.stubs import DRIVER, ClaimsApi, claim

FOLDERS = ("/usr/lib/x86_64-linux-gnu",)


class NoTopology:
    def pcie_root(self, _: PciAddress) -> str | None:
        return None

    def numa_node(self, _: PciAddress) -> int | None:
        return None


class NoMetrics:
    def repaired(self, repair: str, outcome: str) -> None:
        pass

    def set_orphaned_claims(self, count: int) -> None:
        pass


def claim_object(name: str, *devices: str, uid: str = "") -> JsonObject:
    """Allocated, and reserved for a pod."""
    made = claim(name, *devices, uid=uid)
    made["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": f"pod-{name}"}]
    return made


def ref_of(obj: JsonObject) -> ClaimRef:
    metadata = obj["metadata"]
    return ClaimRef(
        namespace=metadata["namespace"], name=metadata["name"], uid=ClaimUID(metadata["uid"])
    )


class Plugin:
    """A start of the plugin: reads ledger and hardware anew. `steps` counts from its first file.

    `known`: what boards can do, and what is on offer, if it need not be read again.
    """

    def __init__(
        self,
        world: World,
        claims: Mapping[str, JsonObject],
        steps: Steps | None = None,
        *,
        known: tuple[Boards, Inventory] | None = None,
    ) -> None:
        steps = steps or Steps()
        self.damaged: list[str] = []
        self.api = ClaimsApi()
        for obj in claims.values():
            self.api.claims["default", obj["metadata"]["name"]] = obj
        self.ledger = LedgerDir(
            world.ledger,
            NODE,
            on_damage=self._damaged,
            files=CountedFiles(steps, "ledger"),
        )
        self.cdi = CdiDir(world.cdi, files=CountedFiles(steps, "CDI"))
        self.library = NvmlLibrary(driver_root=world.root, topology=NoTopology())
        if known is None:
            self.inventory = build_inventory(self.library.snapshot(), world.choices)
        else:
            self.library.boards, self.inventory = known
        self.gpus = list(self.inventory.gpus)
        self.mig = CountedMig(NvmlPartitions(self.library), steps)
        hardware = Hardware()
        hardware.found(self.inventory)
        locks = NamedLocks(world.locks)
        identity = Identity(driver=DRIVER, node=NODE, boot_id=world.boot)
        api, served = cast("KubeApi", self.api), ServedVersion(lambda: "v1")
        root = DriverTree(
            Roots(root=world.root, proc=world.root / "proc"),
            container_folders=FOLDERS,
            required=("libnvidia-ml.so.1",),
        )
        mig = cast("MigLibrary", self.mig)
        partitions = Partitions(mig, wait=lambda _: True)
        gpu_locks, self.turns = GpuLocks(locks), Turns(locks)
        self.claims = Claims(
            identity=identity,
            hardware=hardware,
            api=api,
            served=served,
            ledger=self.ledger,
            cdi=self.cdi,
            driver_root=root,
            partitions=partitions,
            locks=gpu_locks,
            turns=self.turns,
            patience=0,
        )
        self.recovery = Recovery(
            facts=FactFinder(
                identity=identity,
                hardware=hardware,
                ledger=self.ledger,
                cdi=self.cdi,
                driver_root=root,
                library=mig,
            ),
            lookup=ClaimLookup(api, served, identity=identity, followed=dict),
            hardware=hardware,
            ledger=self.ledger,
            cdi=self.cdi,
            library=mig,
            partitions=partitions,
            locks=gpu_locks,
            turns=self.turns,
            metrics=NoMetrics(),
            tell=lambda _reason, _note: None,
            pause=60,
            grace=0,
            wakeup=Supervisor().wakeup(),
        )

    def close(self) -> None:
        """The process could fork again: no library is loaded any more."""
        self.mig.close()
        self.library.close()

    def look(self, *gone: JsonObject) -> None:
        """Recovery's, after these claims were deleted."""
        for obj in gone:
            self.api.claims.pop(("default", obj["metadata"]["name"]), None)
        self.recovery.look()

    def prepare(self, obj: JsonObject) -> PrepareAnswer:
        ref = ref_of(obj)
        return self.claims.prepare([ref])[ref.uid]

    def must_prepare(self, obj: JsonObject) -> tuple[Any, ...]:
        answer = self.prepare(obj)
        assert not isinstance(answer, Failure), f"not prepared: {answer.message}"
        return answer

    def unprepare(self, obj: JsonObject) -> str:
        """The error, if any."""
        ref = ref_of(obj)
        answer = self.claims.unprepare([ref])[ref.uid]
        return answer.message if answer is not None else ""

    def must_unprepare(self, obj: JsonObject) -> None:
        error = self.unprepare(obj)
        assert not error, f"not unprepared: {error}"

    def entries(self) -> Mapping[ClaimUID, Entry]:
        return self.ledger.entries()

    def _damaged(self, where: Path, why: str) -> None:
        self.damaged.append(f"{where.name}: {why}")
