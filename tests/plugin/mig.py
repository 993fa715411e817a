"""MIG in memory: the rules that matter to whoever makes and destroys partitions.

The same life cycle runs against the simulated library in tests/integration and tests/nvml.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from driver.core.errors import InstanceLeft, InUse, NoResources, NotFound, NotSupported, NvmlError
from driver.core.geometry import MigProfile, Placement
from driver.core.ids import GpuUuid
from driver.core.ledger import Made
from driver.core.snapshot import ComputeFacts, InstanceFacts
from driver.ports.nvml import MigMode
from driver.state.thread_locks import ThreadLocks

CHANGES = ("set_mode", "create", "create_compute", "destroy_compute", "destroy")


@dataclass
class MemoryMig:
    """`fail`: raised at the n-th call (from 1) of a method, by its name; of `create` also what it
    reads back of the new instance, and how it undoes that. `calls`: in order.
    `waiting`: GPUs whose mode changes at their next reset. `running`: processes, by GPU
    and instance.
    """

    on: set[GpuUuid] = field(default_factory=set)
    held: dict[GpuUuid, list[InstanceFacts]] = field(default_factory=lambda: defaultdict(list))
    fail: dict[tuple[str, int], NvmlError] = field(default_factory=dict)
    waiting: set[GpuUuid] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    made: int = 0
    running: dict[tuple[GpuUuid, int | None], int] = field(default_factory=dict)

    def mode(self, gpu: GpuUuid) -> MigMode:
        self._call("mode")
        on = gpu in self.on
        return MigMode(enabled=on, pending=on != (gpu in self.waiting))

    def set_mode(self, gpu: GpuUuid, *, on: bool) -> None:
        self._call("set_mode")
        if self.held[gpu] and not on:
            raise error(InUse, "set_mode", 19)
        (self.on.add if on else self.on.discard)(gpu)

    def instances(self, gpu: GpuUuid) -> tuple[InstanceFacts, ...]:
        self._call("instances")
        return tuple(self.held[gpu])

    def create(self, gpu: GpuUuid, profile: MigProfile, placement: Placement) -> int:
        self._call("create")
        if gpu not in self.on:
            raise error(NotSupported, "create", 3)
        if any(i.placement.mask & placement.mask for i in self.held[gpu]):
            raise error(NoResources, "create", 23)
        number = next(n for n in range(1, 16) if n not in {i.id for i in self.held[gpu]})
        made = InstanceFacts(id=number, profile_id=profile.id, placement=placement)
        self.held[gpu].append(made)
        try:
            self._call("read_back")
        except NvmlError:
            try:
                self._call("undo")
            except NvmlError as second:
                raise error(InstanceLeft, "create", second.code) from second
            self.held[gpu].remove(made)
            raise
        return number

    def create_compute(self, gpu: GpuUuid, instance: int) -> ComputeFacts:
        self._call("create_compute")
        self.made += 1
        made = ComputeFacts(id=0, uuid=f"MIG-{self.made}")
        self._replace(gpu, instance, lambda i: replace(i, compute=(*i.compute, made)))
        return made

    def destroy_compute(self, gpu: GpuUuid, instance: int, compute: int) -> None:
        self._call("destroy_compute")
        if instance in self.busy:
            self.busy.discard(instance)
            raise error(InUse, "destroy_compute", 19)
        self._replace(
            gpu,
            instance,
            lambda i: replace(i, compute=tuple(c for c in i.compute if c.id != compute)),
        )

    def destroy(self, gpu: GpuUuid, instance: int) -> None:
        self._call("destroy")
        found = self._find(gpu, instance)
        if found.compute:
            raise error(InUse, "destroy", 19)
        self.held[gpu].remove(found)

    def processes(self, gpu: GpuUuid, made: Made | None) -> int:
        self._call("processes")
        return self.running.get((gpu, made.instance if made else None), 0)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        failure = self.fail.get((name, self.calls.count(name)))
        if failure is not None:
            raise failure

    def _find(self, gpu: GpuUuid, instance: int) -> InstanceFacts:
        for each in self.held[gpu]:
            if each.id == instance:
                return each
        raise error(NotFound, "find", 6)

    def _replace(self, gpu: GpuUuid, instance: int, change: object) -> None:
        found = self._find(gpu, instance)
        assert callable(change)
        self.held[gpu][self.held[gpu].index(found)] = change(found)


class LockedMig:
    """The same for a plugin, which may ask for a change only while it holds that GPU's lock."""

    def __init__(self, mig: MemoryMig, locks: ThreadLocks) -> None:
        self._mig = mig
        self._locks = locks

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._mig, name)

        def locked(gpu: GpuUuid, *args: Any, **kwargs: Any) -> Any:
            assert f"gpu {gpu}" in self._locks._holders, f"{name} on {gpu} without its lock"
            return method(gpu, *args, **kwargs)

        return locked if name in CHANGES else method


def error(kind: type[NvmlError], call: str, code: int) -> NvmlError:
    return kind("injected", call=call, code=code, gpu="GPU")
