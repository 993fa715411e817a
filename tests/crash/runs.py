"""One run: restore the node, let a fault happen in one operation, start anew, look at everything.

`Bench` is a scene with the states that operations begin in. Its runs are independent: each begins
with the bytes of a saved state, in processes of its own.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import Any, TypeVar

from driver.core.errors import StateError
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.snapshot import NodeSnapshot
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.nvml.boards import Boards
from driver.ports.kube import JsonObject
from driver.ports.kubelet import Failure
from hack.simnvml.kit import Machine
from tests.crash.checks import Place, check, hardware, modes, on_disk, temp_files
from tests.crash.faults import Fault, Kind, Steps, is_nvml
from tests.crash.forking import Killed, forked
from tests.crash.plugin import NoTopology, Plugin, claim_object, ref_of
from tests.crash.scenes import Scene, claims_of, device_names
from tests.crash.world import Saved, World, fresh_folder

T = TypeVar("T")
_THOROUGH = 8
"""The faults of each such step are followed by every look that there is."""

FILE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
NVML_ERRORS = (4, 10, 19, 999)
"""No permission, time-out, in use, unknown."""


class NotDone(Exception):
    """The plugin answered with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`before`: the saved state that it begins in. `act` runs with faults; `starting`: they are
    due from the first file that the plugin opens on. `ends`: the claim is to be gone afterwards;
    `deleted`: it is gone from the API, and the kubelet does not ask for it any more.
    """

    name: str
    before: str
    act: Callable[[Bench, Plugin], None]
    starting: bool = False
    ends: bool = False
    deleted: bool = False


class Bench:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.world = World(folder=fresh_folder(), boards=scene.boards, choices=scene.choices)
        self.world.enter()
        self.world.boot = value(forked(self.world.make))
        self.world.restore(self.world.save())
        snapshot = value(forked(self._cut))
        self.boards = Boards()
        self.inventory = build_inventory(snapshot, scene.choices)
        gpus = [g.uuid for g in sorted(snapshot.gpus, key=lambda g: g.index)]
        self.claims = claims_of(scene, gpus)
        self.states: dict[str, Saved] = {"empty": self.world.save()}
        self.others, self.modes = value(forked(self._look))
        main, neighbour = self.claims["main"], self.claims["neighbour"]
        self._save("beside", "empty", lambda p: p.must_prepare(neighbour))
        self._save("prepared", "beside", lambda p: p.must_prepare(main))
        held = on_disk(self.world)[ref_of(main).uid].holdings
        self.left = {h for h in held if h.gpu != gpus[int(scene.main[0][0])]}
        self._save("no file", "prepared", lambda p: p.cdi.remove(ref_of(main).uid))
        self._save("no entry", "prepared", lambda _: self._lose_entry(main))
        self._save("moved", "beside", lambda p: self._prepare_elsewhere(p, gpus))
        if not scene.static:
            self._save("rebooted", "prepared", lambda _: None, reboot=True)
        if scene.partitions and not scene.static:
            self._save("gone", "prepared", self._take_away)

        self._warm()

    def close(self) -> None:
        self.world.close()

    def _warm(self) -> None:
        """What is read of a board once must not be a step of some runs."""
        for operation in self.operations():
            self.world.restore(self.states[operation.before])
            self._again(operation, "retry", failed=False, thorough=True)

    def operations(self) -> Iterator[Operation]:
        """All of them; those that `skips` names are for whoever has the time."""
        yield Operation(name="prepare", before="beside", act=_prepare)
        yield Operation(name="prepare again", before="prepared", act=_prepare)
        yield Operation(name="restore the file", before="no file", act=_prepare)
        yield Operation(name="prepare elsewhere", before="moved", act=_prepare)
        yield Operation(name="unprepare", before="prepared", act=_unprepare, ends=True)
        yield Operation(name="lose and prepare", before="prepared", act=_lose_and_prepare)
        yield Operation(
            name="lose and unprepare", before="prepared", act=_lose_and_unprepare, ends=True
        )
        yield Operation(name="rebuild", before="no entry", act=_begin, starting=True)
        yield Operation(name="recover", before="prepared", act=_recover, ends=True, deleted=True)
        if "gone" in self.states:
            yield Operation(name="make anew", before="gone", act=_prepare)
        if "rebooted" in self.states:
            yield Operation(name="after a reboot", before="rebooted", act=_prepare, starting=True)
            yield Operation(name="forget", before="rebooted", act=_recover, ends=True, deleted=True)
        for name in [n for n in self.states if n.startswith("killed")]:
            yield Operation(name=f"start, {name}", before=name, act=_prepare, starting=True)
            yield Operation(
                name=f"recover, {name}", before=name, act=_recover, ends=True, deleted=True
            )

    # -- in the parent

    def count(self, operation: Operation) -> list[str]:
        """The steps of the operation when nothing goes wrong."""
        self.world.restore(self.states[operation.before])
        return value(forked(partial(self._operate, operation, None)))

    def run(self, operation: Operation, fault: Fault, then: str) -> None:
        """AssertionError says what was not as it must be."""
        self.world.restore(self.states[operation.before])
        if not fault.kills:
            self._fail(operation, fault, then)
            return
        told: Any = forked(partial(self._operate, operation, fault))
        assert isinstance(told, Killed), f"went on without dying: {told}"
        if then == "reboot":
            self._reboot()
        self._again(operation, then, failed=False, thorough=fault.at % _THOROUGH == 0)

    def _fail(self, operation: Operation, fault: Fault, then: str) -> None:
        """The call may fail or not; the same process, or a start anew, is asked again."""
        thorough = fault.at % _THOROUGH == 0
        steps = Steps(fault, armed=operation.starting)
        plugin = None
        try:
            with suppress(NotDone, StateError):
                plugin = self._start(steps, anew=operation.starting)
                steps.armed = True
                operation.act(self, plugin)
            assert steps.happened
            steps.armed = False
            if plugin is not None and then == "same":
                # What the start could not mend is mended by the next look.
                plugin.look()
                self._after(operation, then, plugin, failed=True, thorough=thorough)
                return
        finally:
            if plugin is not None:
                plugin.close()
        self._again(operation, then, failed=True, thorough=thorough)

    def _again(self, operation: Operation, then: str, *, failed: bool, thorough: bool) -> None:
        """A plugin that starts over what is there."""
        plugin = self._start()
        try:
            assert temp_files(self.world) == []
            plugin.recovery.begin()
            self._after(operation, then, plugin, failed=failed, thorough=thorough)
        finally:
            plugin.close()

    def _after(
        self, operation: Operation, then: str, plugin: Plugin, *, failed: bool, thorough: bool
    ) -> None:
        main, neighbour, rival = (self.claims[n] for n in ("main", "neighbour", "rival"))
        uids = [ref_of(main).uid, ref_of(neighbour).uid]
        if operation.before == "gone" and then != "reboot":
            self._check_left(plugin, uids[0])
        if then == "reboot" or operation.before in {"rebooted", "gone"}:
            plugin.must_prepare(neighbour)
        if operation.deleted or then == "deleted":
            plugin.look(main)
        elif operation.ends or then == "end":
            plugin.must_unprepare(main)
        else:
            answer = plugin.must_prepare(main)
            if operation.before == "gone" and then != "reboot":
                self._check_left(plugin, uids[0])
            check(self.world, plugin, prepared=uids, others=self.others)
            assert plugin.prepare(main) == answer
            if thorough:
                self._try_rival(plugin, uids)
            plugin.must_unprepare(main)
        check(self.world, plugin, prepared=uids[1:], others=self.others)
        # Nothing unexplained is on the GPUs, so that another claim can have it; now and then tried.
        if thorough:
            plugin.must_prepare(rival)
            plugin.must_unprepare(rival)
        plugin.must_unprepare(neighbour)
        check(self.world, plugin, prepared=[], others=self.others)
        for number, (now, before) in enumerate(zip(modes(plugin), self.modes, strict=True)):
            if now != before:
                # Where it could not be left, the next claim for the whole GPU leaves it.
                assert failed, "a MIG mode stayed"
                plugin.must_prepare(self.claims[f"whole-{number}"])
                plugin.must_unprepare(self.claims[f"whole-{number}"])
        assert modes(plugin) == self.modes

    def _check_left(self, plugin: Plugin, uid: ClaimUID) -> None:
        """A reset of one GPU costs the claim nothing that it has on the other."""
        if not self.left:
            return
        entry = plugin.entries().get(uid)
        assert entry is not None, "forgotten, with devices that are there"
        assert entry.may_run, "taken for a claim that was never complete"
        assert self.left <= set(entry.holdings), "its other device is not what it was"
        there = hardware(plugin)
        for gpu, slot in ((h.gpu, h.slot) for h in self.left):
            if slot is not None and slot.made is not None:
                found = there[gpu, slot.start, slot.size]
                assert slot.made.uuid in {c.uuid for c in found.compute}

    def _try_rival(self, plugin: Plugin, uids: list[ClaimUID]) -> None:
        """Somebody was promised what `main` has, since its pod was deleted by force."""
        rival = self.claims["rival"]
        told = plugin.prepare(rival)
        if self.scene.late:  # the same name again is another partition, if there is room
            both = [*uids, ref_of(rival).uid]
            check(self.world, plugin, prepared=both, others=self.others)
            plugin.must_unprepare(rival)
        else:
            assert isinstance(told, Failure), "given to two claims"
        check(self.world, plugin, prepared=uids, others=self.others)

    def keep(self, operation: Operation, at: int) -> None:
        """Save what a kill before that step leaves, as a state to begin in."""
        self.world.restore(self.states[operation.before])
        forked(partial(self._operate, operation, Fault(at=at, kind=Kind.KILL_BEFORE)))
        self.states[f"killed in {operation.name} before step {at}"] = self.world.save()

    def _save(
        self, name: str, before: str, act: Callable[[Plugin], object], *, reboot: bool = False
    ) -> None:
        self.world.restore(self.states[before])
        value(forked(lambda: bool(act(self._start()))))
        if reboot:
            self._reboot()
        self.states[name] = self.world.save()

    def _reboot(self) -> None:
        self.world.boot = value(forked(self._boot_anew))

    # -- in children

    def _start(self, steps: Steps | None = None, *, anew: bool = False) -> Plugin:
        """Without reading the boards, which takes most of the time, unless `anew`."""
        known = None if anew else (self.boards, self.inventory)
        return Plugin(self.world, self.claims, steps, known=known)

    def _cut(self) -> NodeSnapshot:
        """By an administrator, before Tessera is there."""
        library = NvmlLibrary(driver_root=self.world.root, topology=NoTopology())
        if not self.scene.cut:
            return library.snapshot()
        machine = Machine.open(self.world.machine)
        for number in {number for number, *_ in self.scene.cut}:
            machine.gpu(number).set(mig_pending=1)
            machine.gpu(number).reset()
        gpus = {g.index: g for g in library.snapshot().gpus}
        mig = NvmlPartitions(library)
        for number, name, start in self.scene.cut:
            gpu = gpus[number]
            assert gpu.mig.geometry is not None
            profile = gpu.mig.geometry.profile(name)
            (place,) = (p for p in profile.placements if p.start == start)
            mig.create_compute(gpu.uuid, mig.create(gpu.uuid, profile, place))
        return library.snapshot()

    def _look(self) -> tuple[list[Place], list[bool]]:
        plugin = self._start()
        return sorted(hardware(plugin)), modes(plugin)

    def _lose_entry(self, main: JsonObject) -> None:
        """A block of the disk is gone, and with it the file's content."""
        (self.world.ledger / f"{ref_of(main).uid}.json").write_bytes(b"\0" * 100)

    def _prepare_elsewhere(self, plugin: Plugin, gpus: Sequence[str]) -> None:
        """The scheduler's first choice for `main`, before it was allocated anew."""
        first = claim_object("main", *device_names(self.scene.elsewhere, gpus))
        plugin.api.claims["default", "main"] = first
        plugin.must_prepare(first)

    def _take_away(self, _: Plugin) -> None:
        """Somebody resets a GPU."""
        Machine.open(self.world.machine).gpu(int(self.scene.main[0][0])).reset()

    def _boot_anew(self) -> str:
        machine = Machine.open(self.world.machine)
        machine.reboot()
        for file in self.world.cdi.iterdir():  # a tmpfs
            file.unlink()
        return str(machine.get("boot_id"))

    def _operate(self, operation: Operation, fault: Fault | None) -> list[str]:
        steps = Steps(fault, armed=operation.starting)
        plugin = self._start(steps, anew=operation.starting)
        steps.armed = True
        operation.act(self, plugin)
        return steps.names


def value(told: T | Killed) -> T:
    assert not isinstance(told, Killed), "killed without being asked to be"
    return told


def _prepare(bench: Bench, plugin: Plugin) -> None:
    answer = plugin.prepare(bench.claims["main"])
    if isinstance(answer, Failure):
        raise NotDone(answer.message)


def _begin(_: Bench, plugin: Plugin) -> None:
    plugin.recovery.begin()


def _recover(bench: Bench, plugin: Plugin) -> None:
    plugin.look(bench.claims["main"])


def _unprepare(bench: Bench, plugin: Plugin) -> None:
    if error := plugin.unprepare(bench.claims["main"]):
        raise NotDone(error)


def _lose(bench: Bench) -> None:
    """The ledger's file goes while the plugin runs."""
    (bench.world.ledger / f"{ref_of(bench.claims['main']).uid}.json").unlink(missing_ok=True)


def _lose_and_prepare(bench: Bench, plugin: Plugin) -> None:
    _lose(bench)
    _prepare(bench, plugin)


def _lose_and_unprepare(bench: Bench, plugin: Plugin) -> None:
    _lose(bench)
    _unprepare(bench, plugin)


def faults(
    steps: list[str], *, ends: bool, reboots: bool, failing: bool, full: bool
) -> Iterator[tuple[Fault, str]]:
    """Every moment between two steps is died in, every step fails, and every write is torn. In
    turns, unless it is to be `full`: what follows, and with which code a step fails.
    """
    follows = ("retry", *(() if ends else ("end", "deleted")), *(("reboot",) if reboots else ()))
    turn = count()
    for at, name in enumerate(steps):
        kills = [Kind.KILL_BEFORE]
        if full or at == len(steps) - 1:
            kills.append(Kind.KILL_AFTER)
        if name.endswith(" write"):
            kills.append(Kind.TORN)
        for kind in kills:
            for then in _some(follows, turn, full):
                yield Fault(at=at, kind=kind), then
        if not failing:
            continue
        codes = NVML_ERRORS if is_nvml(name) else FILE_ERRORS
        # An ill GPU, a full disk: at the other steps of a write they are the same again.
        lasting = is_nvml(name) or name.endswith((" write", " fsync"))
        for kind in (Kind.FAIL, *((Kind.FAIL_ON,) if lasting or full else ())):
            for code, then in _some(tuple(product(codes, ("same", "restart"))), turn, full):
                yield Fault(at=at, kind=kind, code=code), then


def _some(options: Sequence[T], turn: Iterator[int], full: bool) -> Sequence[T]:
    return options if full else [options[next(turn) % len(options)]]
