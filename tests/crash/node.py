"""The node that is tortured: its GPUs, its pods as kubelet and scheduler see them, and a look at
whether what was promised is so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from driver.core.ids import ClaimUID, GpuUuid
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry, Phase, conflict
from driver.core.snapshot import NodeSnapshot
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.nvml.boards import Boards
from driver.ports.kubelet import Failure
from hack.simnvml.kit import Machine
from tests.crash.checks import Place, check_cdi, hardware, on_disk
from tests.crash.faults import Steps
from tests.crash.forking import forked
from tests.crash.plugin import NoTopology, Plugin, claim_object, ref_of
from tests.crash.pods import Pod, Told, overlap
from tests.crash.runs import value
from tests.crash.story import Story, shown
from tests.crash.world import World, fresh_folder


@dataclass(kw_only=True)
class Node:
    random_uuids: bool
    pods: dict[str, Pod] = field(default_factory=dict)
    foreign: dict[Place, str] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        self.world = World(folder=fresh_folder(), boards=("h100-80", "h100-80"))
        self.world.enter()
        self.world.boot = value(forked(self.world.make))
        self.world.restore(self.world.save())
        self.boards = Boards()
        self.inventory = build_inventory(value(forked(self._read)), self.world.choices)
        self.gpus = sorted(self.inventory.gpus)
        self.story = Story()
        self._seen: list[str] = []

    def close(self) -> None:
        self.story.close()
        self.world.close()

    def begin(self) -> None:
        """Another round, and its story."""
        self.story.close()
        self.story = Story()
        for line in self._seen:
            self.story.note(f"had {line}")

    def plugin(self, steps: Steps | None = None) -> Plugin:
        claims = {pod.name: pod.obj for pod in self.pods.values() if not pod.deleted}
        return Plugin(self.world, claims, steps, known=(self.boards, self.inventory))

    # -- what happens

    def allocate(self, random: Random) -> None:
        """As the scheduler: never what it knows to be taken."""
        taken = [pod.device for pod in self.pods.values() if not pod.deleted]
        free = [d for d in self.inventory.devices.values() if not any(overlap(d, t) for t in taken)]
        if not free:
            return
        device = random.choice(free)
        self.made += 1
        name = f"pod-{self.made}"
        self.pods[name] = Pod(name=name, device=device, obj=claim_object(name, device.name))
        self.story.note(f"{name} is allocated {device.name}")

    def end(self, pod: Pod) -> None:
        self.story.note(f"{pod.name} ends")
        pod.end()

    def delete(self, pod: Pod) -> None:
        self.story.note(f"{pod.name} is deleted by force")
        pod.deleted = True
        pod.end()

    def reset(self, gpu: GpuUuid) -> None:
        """By somebody else: all partitions of the GPU are gone, and what ran there ended."""
        self.story.note(f"{gpu[:8]} is reset")
        self._on_machine(lambda m: next(g for g in m.gpus if g.uuid == gpu).reset())
        self.foreign = {place: uuid for place, uuid in self.foreign.items() if place[0] != gpu}
        for pod in self.pods.values():
            pod.answer = None

    def reboot(self) -> None:
        def boot(machine: Machine) -> str:
            machine.reboot()
            return str(machine.get("boot_id"))

        self.world.boot = self._on_machine(boot)
        self.story.note(f"boots as {self.world.boot[:8]}")
        for file in self.world.cdi.iterdir():
            file.unlink()
        self.foreign.clear()
        for pod in self.pods.values():
            pod.answer = None

    def cut(self, random: Random) -> None:
        """Somebody else makes a partition. Not where a preparation has begun: what is there passes
        for its own. Nor where UUIDs come again, so that the ledger would know it.
        """
        gpu = random.choice(self.gpus)
        geometry = self.inventory.gpus[gpu].mig.geometry
        assert geometry is not None
        profile = random.choice(geometry.profiles)
        place = random.choice(profile.placements)
        entries = on_disk(self.world).values()
        kept = [e for e in entries if e.phase is Phase.STARTED or not self.random_uuids]
        held = [h for e in kept for h in e.holdings if h.gpu == gpu]
        if any(h.mask & place.mask for h in held):
            return

        def make() -> str:
            plugin = self.plugin()
            there = plugin.mig.instances(gpu)
            if any(i.placement.mask & place.mask for i in there):
                return ""
            if sum(i.profile_id == profile.id for i in there) >= profile.max_instances:
                return ""
            plugin.mig.set_mode(gpu, on=True)
            made = plugin.mig.create_compute(gpu, plugin.mig.create(gpu, profile, place))
            return str(made.uuid)

        if uuid := value(forked(make)):
            self.foreign[gpu, place.start, place.size] = uuid
            self.story.note(f"{gpu[:8]} {place.start}+{place.size}: {uuid} is made by others")

    def uncut(self, random: Random) -> None:
        if not self.foreign:
            return
        place = random.choice(sorted(self.foreign))

        def remove() -> None:
            plugin = self.plugin()
            instance = hardware(plugin)[place]
            for compute in instance.compute:
                plugin.mig.destroy_compute(place[0], instance.id, compute.id)
            plugin.mig.destroy(place[0], instance.id)

        value(forked(remove))
        del self.foreign[place]
        self.story.note(f"{place[0][:8]} {place[1]}+{place[2]}: is destroyed by its maker")

    def lose(self, plugin: Plugin, name: str) -> None:
        """The entry of a complete claim goes, under a plugin that runs; its CDI file is there. Not
        where UUIDs come again: a file alone does not tell two partitions at one place apart. Nor
        where its end has begun: a partition without a compute instance has no UUID any more.
        """
        uid = ref_of(self.pods[name].obj).uid
        with plugin.turns.try_held(uid) as free:
            entry = plugin.ledger.known().get(uid) if free and self.random_uuids else None
            if entry is None or (entry.phase, entry.boot_id) != (Phase.COMPLETED, self.world.boot):
                return
            if uid in plugin.cdi.claims() and self._is_there(plugin, entry):
                (self.world.ledger / f"{uid}.json").unlink(missing_ok=True)

    def _is_there(self, plugin: Plugin, entry: Entry) -> bool:
        there = hardware(plugin)
        places = {(h.gpu, h.slot.start, h.slot.size): h.uuid for h in entry.holdings if h.slot}
        return all(
            place in there and uuid in {c.uuid for c in there[place].compute}
            for place, uuid in places.items()
        )

    # -- what is so

    def told(self, lines: list[Told]) -> None:
        for line in lines:
            self.pods[line["name"]].told(line)

    def examine(self) -> None:
        """By a plugin that starts now, and that nothing happens to."""
        plugin = self.plugin()
        try:
            plugin.recovery.begin()
            self._explained(plugin)
            for pod in list(self.pods.values()):
                uid = ref_of(pod.obj).uid
                if pod.answer is not None and not pod.unsure:
                    self._runs(plugin, pod, uid)
                elif pod.gone and not pod.unsure:
                    assert uid not in plugin.entries(), f"{pod.name} was unprepared"
                    assert uid not in plugin.cdi.claims(), f"{pod.name} was unprepared"
                    del self.pods[pod.name]
        finally:
            plugin.close()

    def drain(self) -> None:
        """Every pod ends: only what is not ours is left."""
        plugin = self.plugin()
        try:
            for pod in self.pods.values():
                plugin.must_unprepare(pod.obj)
            self.pods.clear()
            plugin.look()
            assert on_disk(self.world) == {}
            assert list(self.world.cdi.iterdir()) == []
            assert set(hardware(plugin)) == set(self.foreign)
        finally:
            plugin.close()

    def _explained(self, plugin: Plugin) -> None:
        """Nothing is given twice, and every instance is somebody's."""
        entries, there = on_disk(self.world), hardware(plugin)
        self._seen = shown(entries, there, self.foreign)
        for line in self._seen:
            self.story.note(f"has {line}")
        present = [e for e in entries.values() if e.boot_id == self.world.boot]
        for number, entry in enumerate(present):
            assert not conflict(entry, present[:number]), conflict(entry, present[:number])
        ours = {(h.gpu, h.slot.start, h.slot.size) for e in present for h in e.holdings if h.slot}
        for place, uuid in self.foreign.items():
            left = [c.uuid for c in there[place].compute] if place in there else []
            assert left == [uuid], f"destroyed, but not ours: {place}"
        unknown = there.keys() - ours - self.foreign.keys()
        assert not unknown, f"nobody's: {unknown}"

    def _runs(self, plugin: Plugin, pod: Pod, uid: ClaimUID) -> None:
        entry = plugin.entries().get(uid)
        assert entry is not None, f"{pod.name} runs, and the ledger does not know it"
        assert entry.phase is Phase.COMPLETED, f"{pod.name} runs, and is not complete"
        there = hardware(plugin)
        for holding in entry.holdings:
            if holding.slot is not None:
                found = there[holding.gpu, holding.slot.start, holding.slot.size]
                assert holding.uuid in {c.uuid for c in found.compute}
        check_cdi(self.world, entry)
        answer = plugin.prepare(pod.obj)
        assert not isinstance(answer, Failure), answer
        assert repr(answer) == pod.answer

    def _read(self) -> NodeSnapshot:
        machine = Machine.open(self.world.machine)
        machine.set(mig_uuid_random=int(self.random_uuids))
        library = NvmlLibrary(driver_root=self.world.root, topology=NoTopology())
        NvmlPartitions(library)
        return library.snapshot()

    def _on_machine(self, act: Callable[[Machine], Any]) -> Any:
        return value(forked(lambda: act(Machine.open(self.world.machine))))
