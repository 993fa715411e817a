"""GPUs that can be cut, and one node's use cases around them, all in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from driver.core.choices import Choices
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry
from driver.core.snapshot import GpuFacts, InstanceFacts, MigState, NodeSnapshot
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.claims import Claims
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.turns import Turns
from driver.plugin.served import ServedVersion
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.kubelet import ClaimRef, Failure, PrepareAnswer
from driver.ports.nvml import MigLibrary
from driver.state.thread_locks import ThreadLocks
from tests.data.mig_boards import H100
from tests.plugin.mig import LockedMig, MemoryMig
from tests.plugin.stubs import (
    DRIVER,
    NODE,
    ClaimsApi,
    MemoryCdi,
    MemoryLedger,
    Root,
    device,
    gpu,
    snapshot,
)


def mig_gpu(number: int, *instances: InstanceFacts, enabled: bool = False) -> GpuFacts:
    """An H100 that is cut on demand."""
    mig = MigState(
        capable=True,
        enabled=enabled,
        pending=enabled,
        switchable=True,
        geometry=H100,
        instances=instances,
    )
    return replace(gpu(number), mig=mig)


def mig_snapshot(*gpus: GpuFacts) -> NodeSnapshot:
    return replace(snapshot(0), gpus=gpus)


def partition(number: int, profile: str, start: int) -> str:
    """The name of a device."""
    return f"{device(number)}-mig-{profile.replace('.', '')}-{start}"


class MigNode:
    """Two H100. `of`: the node before its plugin, or with another `boot` it, was started anew."""

    def __init__(self, *, boot: str = "boot-1", of: MigNode | None = None) -> None:
        self.api: ClaimsApi = of.api if of else ClaimsApi()
        self.ledger: MemoryLedger = of.ledger if of else MemoryLedger()
        self.cdi: MemoryCdi = of.cdi if of else MemoryCdi()
        self.mig: MemoryMig = of.mig if of else MemoryMig()
        self.root = Root()
        self.prepared: list[Entry] = []
        self.lost = 0
        self.hardware = hardware = Hardware()
        hardware.found(build_inventory(mig_snapshot(mig_gpu(0), mig_gpu(1)), Choices()))
        self.locks = locks = ThreadLocks()
        self.library = cast("MigLibrary", LockedMig(self.mig, locks))
        self.claims = Claims(
            identity=Identity(driver=DRIVER, node=NODE, boot_id=boot),
            hardware=hardware,
            api=cast("KubeApi", self.api),
            served=ServedVersion(lambda: "v1"),
            ledger=self.ledger,
            cdi=self.cdi,
            driver_root=self.root,
            partitions=Partitions(self.library, wait=lambda _: None),
            locks=GpuLocks(locks),
            turns=Turns(locks),
            on_prepared=self.prepared.append,
            on_lost=self._missed,
            patience=0,
        )

    def _missed(self) -> None:
        self.lost += 1

    def add(self, obj: JsonObject) -> ClaimRef:
        metadata = obj["metadata"]
        self.api.claims[metadata["namespace"], metadata["name"]] = obj
        return ClaimRef(
            namespace=metadata["namespace"], name=metadata["name"], uid=ClaimUID(metadata["uid"])
        )

    def prepare(self, ref: ClaimRef) -> PrepareAnswer:
        return self.claims.prepare([ref])[ref.uid]

    def error(self, ref: ClaimRef) -> str:
        answer = self.prepare(ref)
        assert isinstance(answer, Failure)
        return answer.message

    def unprepare(self, ref: ClaimRef) -> str:
        """The error, if any."""
        answer = self.claims.unprepare([ref])[ref.uid]
        return answer.message if answer is not None else ""

    def entries(self) -> Mapping[ClaimUID, Entry]:
        return self.ledger.entries()

    def instances(self, number: int = 0) -> list[InstanceFacts]:
        return self.mig.held[gpu(number).uuid]
