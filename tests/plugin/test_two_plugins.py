"""Two plugins of one node over one folder: as in a rolling update, each may get any call."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from driver.core.errors import ClaimError, NvmlError
from driver.core.inventory import build_inventory
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.claims import Claims
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.turns import Turns
from driver.plugin.served import ServedVersion
from driver.ports.kube import KubeApi
from driver.ports.kubelet import ClaimRef
from driver.state.atomic import Files
from driver.state.cdi_store import CdiDir
from driver.state.ledger import LedgerDir
from driver.state.named_locks import NamedLocks
from tests.plugin.mig import MemoryMig, error
from tests.plugin.nodes import mig_gpu, mig_snapshot, partition
from tests.plugin.stubs import DRIVER, NODE, ClaimsApi, Root, claim, device, gpu

FAILED = error(NvmlError, "injected", 999)


class Two:
    """The folder, the hardware and the API are one; all else is each plugin's own."""

    def __init__(self, folder: Path, *, patience: float = 0) -> None:
        self.folder = folder
        self.api, self.mig = ClaimsApi(), MemoryMig()
        self.cdi = folder / "cdi"
        self.ledgers = [self.ledger() for _ in range(2)]
        self.plugins = [self.plugin(ledger, patience) for ledger in self.ledgers]

    def ledger(self, files: Files | None = None) -> LedgerDir:
        def damaged(where: Path, why: str) -> None:
            pytest.fail(f"{where}: {why}")

        return LedgerDir(self.folder / "ledger", NODE, on_damage=damaged, files=files)

    def plugin(self, ledger: LedgerDir, patience: float) -> Claims:
        locks = NamedLocks(self.folder / "locks", retry=0.001)
        hardware = Hardware()
        hardware.found(build_inventory(mig_snapshot(mig_gpu(0), mig_gpu(1))))
        return Claims(
            identity=Identity(driver=DRIVER, node=NODE, boot_id="boot-1"),
            hardware=hardware,
            api=cast("KubeApi", self.api),
            served=ServedVersion(lambda: "v1"),
            ledger=ledger,
            cdi=CdiDir(self.cdi),
            driver_root=Root(),
            partitions=Partitions(self.mig, wait=lambda _: None),
            locks=GpuLocks(locks),
            turns=Turns(locks),
            patience=patience,
        )

    def add(self, name: str, *devices: str) -> ClaimRef:
        self.api.claims["default", name] = claim(name, *devices)
        uid = self.api.claims["default", name]["metadata"]["uid"]
        return ClaimRef(namespace="default", name=name, uid=uid)

    def prepare(self, which: int, ref: ClaimRef) -> str:
        """The error, if any."""
        answer = self.plugins[which].prepare([ref])[ref.uid]
        return "" if isinstance(answer, tuple) else answer.message

    def unprepare(self, which: int, ref: ClaimRef) -> str:
        answer = self.plugins[which].unprepare([ref])[ref.uid]
        return answer.message if answer is not None else ""


def test_what_one_plugin_prepared_the_other_answers_and_takes_back(tmp_path):
    two = Two(tmp_path)
    ref = two.add("a", partition(0, "1g.10gb", 0))
    first = two.plugins[0].prepare([ref])
    assert two.plugins[1].prepare([ref]) == first
    assert two.unprepare(1, ref) == ""
    assert two.ledgers[0].entries() == {}
    assert list(two.cdi.iterdir()) == []
    assert not any(two.mig.held.values())


def test_a_slot_that_one_plugin_gave_away_is_refused_by_the_other(tmp_path):
    two = Two(tmp_path)
    assert two.prepare(0, two.add("a", partition(0, "1g.10gb", 0))) == ""
    held = two.prepare(1, two.add("b", device(0)))
    assert "still held by claim default/a" in held


def test_who_waits_in_one_plugin_is_served_when_the_other_has_released(tmp_path):
    two = Two(tmp_path, patience=30)
    first, second = two.add("a", device(0)), two.add("b", device(0))
    assert two.prepare(0, first) == ""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(two.prepare, 1, second)
        assert two.unprepare(0, first) == ""
        assert waiting.result(20) == ""


class Unsynced(Files):
    """A disk on which a removal is done, and not known to last."""

    ill = False

    def fsync(self, fd: int) -> None:
        if self.ill:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(fd)


def test_a_removal_that_one_plugin_could_not_finish_takes_nothing_from_who_came_after(tmp_path):
    """It still shows the entry, as a power cut could bring it back; the other gives the slot on."""
    two, disk = Two(tmp_path), Unsynced()
    first = two.plugin(two.ledger(disk), patience=0)
    place = partition(0, "1g.10gb", 0)
    before, after = two.add("a", place), two.add("b", place)
    two.mig.fail = {("read_back", 1): FAILED, ("undo", 1): FAILED}
    assert "clears what is left" in str(first.prepare([before]))
    disk.ill = True
    assert "cannot remove" in str(first.unprepare([before]))
    disk.ill = False
    assert two.prepare(1, after) == ""
    assert first.unprepare([before]) == {before.uid: None}
    assert len(two.mig.held[gpu(0).uuid]) == 1
    assert two.prepare(0, after) == ""
    assert two.mig.calls.count("create") == 2


class Held:
    """What is handed out by the word of the plugins; a second holder of a slot is an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[str, str] = {}

    @contextmanager
    def holding(self, name: str, slots: list[str]) -> Iterator[None]:
        with self._lock:
            taken = {slot: self._slots[slot] for slot in slots if slot in self._slots}
            if taken:
                raise ClaimError(f"{name} was given {taken}")
            self._slots.update(dict.fromkeys(slots, name))
        try:
            yield
        finally:
            with self._lock:
                for slot in slots:
                    del self._slots[slot]


def wishes(rng: random.Random) -> tuple[str, list[str]]:
    """A device, and the slots that it takes."""
    number, start = rng.randrange(2), rng.randrange(4)
    if rng.random() < 0.3:
        return device(number), [f"{number}.{i}" for i in range(8)]
    if rng.random() < 0.5:
        return partition(number, "3g.40gb", 4), [f"{number}.{i}" for i in range(4, 8)]
    return partition(number, "1g.10gb", start), [f"{number}.{start}"]


@pytest.mark.parametrize("seed", range(4))
def test_no_slot_is_ever_given_twice_and_nothing_is_left(tmp_path, seed):
    """Eight threads, two plugins, calls for each claim to any of them."""
    two, held, served = Two(tmp_path), Held(), []

    def work(worker: int) -> None:
        rng = random.Random(f"{seed}.{worker}")
        for turn in range(12):
            chosen, slots = wishes(rng)
            ref = two.add(f"c-{worker}-{turn}", chosen)
            if two.prepare(rng.randrange(2), ref) == "":
                with held.holding(ref.name, slots):
                    served.append(ref.name)
                    assert two.prepare(rng.randrange(2), ref) == ""
            assert two.unprepare(rng.randrange(2), ref) == ""

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(served) > 8
    assert two.ledgers[0].entries() == two.ledgers[1].entries() == two.ledger().entries() == {}
    assert not any(two.mig.held.values())
    assert list(two.cdi.iterdir()) == []
