"""Any sequence of MIG calls and faults, against a model that fits on a page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pynvml as n
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hack.simnvml.boards import Board, board
from hack.simnvml.kit import Machine
from hack.simnvml.testing import preload, shut_down
from tests.simnvml.helpers import code_of, create

INDEX = st.integers(0, 30)


class Partitioning(RuleBasedStateMachine):
    """`live` is the model: GPU instance id to (profile, start, handle, compute instances)."""

    board: Board

    @initialize(random_ids=st.booleans(), key=st.sampled_from(["h100-80", "a30", "rtx-pro-6000"]))
    def power_up(self, random_ids: bool, key: str) -> None:
        preload()
        self.folder = tempfile.TemporaryDirectory()
        self.machine = Machine.create(Path(self.folder.name), [key])
        self.machine.set(gi_ids_random=int(random_ids))
        self.machine.gpu(0).set(mig_needs_reset=0)
        self.environment = pytest.MonkeyPatch()
        self.environment.setenv("SIMNVML_STATE", self.folder.name)
        n.nvmlInit()
        self.gpu = n.nvmlDeviceGetHandleByIndex(0)
        n.nvmlDeviceSetMigMode(self.gpu, 1)
        self.board = board(key)
        self.profiles = {p.id: p for p in self.board.profiles}
        self.live: dict[int, dict[str, Any]] = {}
        self.stale: list[Any] = []
        self.uuids: dict[tuple[int, int], str] = {}

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            shut_down()
            self.machine.close()
            self.environment.undo()
            self.folder.cleanup()

    def fits(self, profile, at: int) -> bool:
        others = [self.profiles[gi["profile"]] for gi in self.live.values()]
        cells = set(range(at, at + profile.size))
        taken = {
            cell
            for gi in self.live.values()
            for cell in range(gi["at"], gi["at"] + self.profiles[gi["profile"]].size)
        }
        return (
            not cells & taken
            and [p.id for p in others].count(profile.id) < profile.count
            and sum(p.slices for p in others) + profile.slices <= self.board.gi_slices
            and all(
                sum(getattr(p, engine) for p in (*others, profile))
                <= max(getattr(p, engine) for p in self.board.profiles)
                for engine in ("dec", "enc", "jpeg", "ofa")
            )
        )

    def pick(self, index: int) -> tuple[int, dict[str, Any]]:
        gi = sorted(self.live)[index % len(self.live)]
        return gi, self.live[gi]

    @rule(which=INDEX, place=INDEX)
    def make(self, which: int, place: int) -> None:
        profile = self.board.profiles[which % len(self.board.profiles)]
        at = profile.starts[place % len(profile.starts)]
        expected = 0 if self.fits(profile, at) else n.NVML_ERROR_INSUFFICIENT_RESOURCES
        assert code_of(create, self.gpu, profile.id, at, profile.size) == expected
        if expected == 0:
            [new] = {i.gi for i in self.machine.gpu(0).instances()} - set(self.live)
            handle = n.nvmlDeviceGetGpuInstanceById(self.gpu, new)
            self.live[new] = {"profile": profile.id, "at": at, "handle": handle, "cis": {}}

    @precondition(lambda self: self.live)
    @rule(which=INDEX)
    def compute(self, which: int) -> None:
        gi, instance = self.pick(which)
        slices = self.profiles[instance["profile"]].slices
        one = n.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE
        room = len(instance["cis"]) < slices
        code = code_of(n.nvmlGpuInstanceCreateComputeInstance, instance["handle"], one)
        assert code == (0 if room else n.NVML_ERROR_INSUFFICIENT_RESOURCES)
        if room:
            ids = {i.ci for i in self.machine.gpu(0).instances() if i.gi == gi and i.ci is not None}
            [new] = ids - set(instance["cis"])
            ci = n.nvmlGpuInstanceGetComputeInstanceById(instance["handle"], new)
            instance["cis"][new] = ci
            uuid = n.nvmlDeviceGetUUID(n.nvmlComputeInstanceGetInfo(ci).device)
            assert self.uuids.setdefault((gi, new), uuid) == uuid

    @precondition(lambda self: self.live)
    @rule(which=INDEX, busy=st.booleans())
    def destroy(self, which: int, busy: bool) -> None:
        gi, instance = self.pick(which)
        self.machine.gpu(0).busy(busy, gi=gi)
        expected = n.NVML_ERROR_IN_USE if busy or instance["cis"] else 0
        assert code_of(n.nvmlGpuInstanceDestroy, instance["handle"]) == expected
        if expected:
            self.machine.gpu(0).busy(False, gi=gi)
        else:
            self.stale.append(self.live.pop(gi)["handle"])

    @precondition(lambda self: any(gi["cis"] for gi in self.live.values()))
    @rule(which=INDEX, busy=st.booleans())
    def destroy_compute(self, which: int, busy: bool) -> None:
        pairs = [(gi, ci) for gi in sorted(self.live) for ci in sorted(self.live[gi]["cis"])]
        gi, ci = pairs[which % len(pairs)]
        handle = self.live[gi]["cis"][ci]
        self.machine.gpu(0).busy(busy, gi=gi, ci=ci)
        expected = n.NVML_ERROR_IN_USE if busy else 0
        assert code_of(n.nvmlComputeInstanceDestroy, handle) == expected
        if busy:
            self.machine.gpu(0).busy(False, gi=gi, ci=ci)
        else:
            del self.live[gi]["cis"][ci]

    @rule(which=INDEX)
    def fail(self, which: int) -> None:
        """What fails by a rule changes nothing."""
        profile = self.board.profiles[which % len(self.board.profiles)]
        with self.machine.rule("nvml*Create*", ret=n.NVML_ERROR_UNKNOWN):
            code = code_of(n.nvmlDeviceCreateGpuInstance, self.gpu, profile.id)
        assert code == n.NVML_ERROR_UNKNOWN

    @precondition(lambda self: self.live)
    @rule()
    def reset(self) -> None:
        self.stale += [instance["handle"] for instance in self.live.values()]
        self.machine.gpu(0).lose()
        assert code_of(n.nvmlDeviceGetMigMode, self.gpu) == n.NVML_ERROR_GPU_IS_LOST
        self.machine.gpu(0).reset()
        self.live.clear()

    @invariant()
    def the_machine_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "machine"):
            return
        seen = {(i.gi, i.profile_id, i.start, i.ci) for i in self.machine.gpu(0).instances()}
        assert seen == {
            (gi, instance["profile"], instance["at"], ci)
            for gi, instance in self.live.items()
            for ci in (instance["cis"] or {None: None})
        }

    @invariant()
    def old_handles_stay_dead(self) -> None:
        for handle in getattr(self, "stale", ())[-3:]:
            code = code_of(n.nvmlGpuInstanceGetInfo, handle)
            assert code == n.NVML_ERROR_INVALID_ARGUMENT


Partitioning.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPartitioning = Partitioning.TestCase
