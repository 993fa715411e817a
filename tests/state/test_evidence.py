"""What is held against a GPU outlives the process, a full disk, a torn file and another version."""

from __future__ import annotations

import errno
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from driver.core.errors import StateDamaged, StateError, StateTooNew
from driver.core.health.evidence import probe_started, take
from driver.core.health.items import (
    DAMAGED,
    Cleared,
    Evidence,
    Identity,
    Item,
    KnownGpu,
    Sighting,
    Sort,
)
from driver.core.health.signals import (
    NODE,
    Acknowledged,
    Fault,
    Need,
    ProbePassed,
    ResetSeen,
    Scope,
    Signal,
    Source,
)
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.state.evidence import COUNTERS_SECONDS, NAME, EvidenceFile
from driver.state.evidence_file import VERSION, decode, encode
from tests.state.faults import Killed, ScriptedFiles, names

GPU = GpuUuid("GPU-0")
IDENTITY = Identity(serials={GPU: "7"}, places={(GPU, 1): 3})
FULL = Item(
    source=Source.KERNEL,
    scope=Scope(gpu=GPU, gi=1, ci=0),
    name="xid-95",
    need=Need.OPERATOR,
    first=1.25,
    last=1e9 + 0.1,
    boot_id="boot-1",
    count=7,
    detail="a 'line'\n\N{SNOWMAN}",
    place="gpc1",
    slots=3,
    serial="7",
    returns=2,
    wish=True,
    suspect=True,
    well=1.0,
    reset=2.0,
    acknowledged=Acknowledged(gpu=GPU, name="xid-95", serial="7", by="ann", at=3.0),
    overruled=4.0,
    proved=frozenset({GPU}),
)
EVIDENCE = Evidence(
    boot_id="boot-1",
    clock=1e9 + 0.2,
    items={FULL.key: FULL, (node := replace(FULL, scope=NODE, injected=True)).key: node},
    cleared={Sort(None, "x"): Cleared(at=5.0, returns=1)},
    sightings={Sighting(GPU, "xid-13", "gpc1"): 6.0},
    gpus={GPU: KnownGpu(pci=PciAddress(domain=0, bus=59, device=0), minor=None, serial="7")},
)


class Told(list[tuple[Path, str]]):
    def __call__(self, path: Path, reason: str) -> None:
        self.append((path, reason))


def opened(folder: Path, *, files: ScriptedFiles | None = None, told: Told | None = None):
    return EvidenceFile(folder, "n1", on_damage=told if told is not None else Told(), files=files)


def after(evidence: Evidence, *signals: Signal) -> Evidence:
    for signal in signals:
        evidence = take(evidence, signal, boot_id="boot-1", now=signal.at, identity=IDENTITY)
    return evidence


def fault(at: float, name: str = "xid-95", need: Need = Need.RESET) -> Fault:
    return Fault(source=Source.KERNEL, scope=Scope(gpu=GPU), name=name, need=need, at=at)


def test_every_field_comes_back():
    assert decode(encode(EVIDENCE, node="n1"), node="n1", name="f") == EVIDENCE


def test_a_node_that_never_had_evidence_has_none(tmp_path):
    file = opened(tmp_path / "plugin")
    found = file.load(boot_id="boot-1", now=5.0)
    assert (found.boot_id, found.items) == ("boot-1", {})
    assert file.save(found, now=5.0) is None
    assert names(tmp_path / "plugin") == [NAME]


def test_a_restart_finds_what_was_saved_and_a_new_boot_is_noticed(tmp_path):
    sick = after(Evidence(), fault(10.0))
    opened(tmp_path).save(sick, now=10.0)
    assert opened(tmp_path).load(boot_id="boot-1", now=20.0) == sick
    booted = opened(tmp_path).load(boot_id="boot-2", now=20.0)
    assert booted == replace(sick, boot_id="boot-2")


def test_what_matters_is_written_at_once_and_counters_a_little_later(tmp_path):
    files = ScriptedFiles()
    file = opened(tmp_path, files=files)
    evidence = file.load(boot_id="boot-1", now=0.0)
    file.save(evidence, now=0.0)

    def writes(*signals: Signal) -> tuple[int, float | None]:
        nonlocal evidence
        evidence = after(evidence, *signals)
        before = files.calls.count("rename")
        due = file.save(evidence, now=evidence.clock)
        return files.calls.count("rename") - before, due

    assert writes(fault(10.0)) == (1, None)
    assert writes(*(fault(10 + n / 1000) for n in range(1, 4000))) == (0, 10 + COUNTERS_SECONDS)
    assert writes(fault(10 + COUNTERS_SECONDS)) == (1, None)
    assert writes(ResetSeen(gpu=GPU, at=16.0)) == (1, None)
    assert writes(fault(17.0)) == (1, None)
    assert writes(fault(17.5, need=Need.REBOOT)) == (1, None)
    assert writes(fault(18.0, "xid-45", Need.NOTHING)) == (0, 17.5 + COUNTERS_SECONDS)
    assert file.save(evidence, now=30.0) is None
    assert writes() == (0, None)
    evidence = probe_started(evidence, NODE, 31.0)
    assert writes() == (0, None)
    assert opened(tmp_path).load(boot_id="boot-1", now=31.0) == replace(evidence, tries={})


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def signed(body: str) -> bytes:
    digest = hashlib.sha256(body.encode()).hexdigest()
    header = {"format": "tessera-evidence", "node": "n1", "sha256": digest, "version": VERSION}
    return f"{json.dumps(header)}\n{body}\n".encode()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda _: b"", "not two whole lines"),
        (lambda data: data[:-1], "not two whole lines"),
        (lambda data: data[: len(data) // 2], "not two whole lines"),
        (flipped, "checksum"),
        (lambda _: b"\x00\xff\n\n", "unreadable header"),
        (lambda data: data.replace(b"tessera-evidence", b"tessera-ledger"), "not a tessera-"),
        (lambda data: data.replace(b'"n1"', b'"n2"', 1), "written on node 'n2'"),
        (lambda _: signed("{}"), "boot_id"),
        (lambda _: signed('{"boot_id":"b","clock":1e999,"items":[]}'), "clock"),
    ],
)
def test_a_damaged_file_is_kept_aside_and_no_gpu_is_known_to_be_well(tmp_path, damage, says):
    opened(tmp_path).save(after(Evidence(), fault(10.0)), now=10.0)
    path = tmp_path / NAME
    path.write_bytes(bad := damage(path.read_bytes()))
    told = Told()
    found = opened(tmp_path, told=told).load(boot_id="boot-1", now=20.0)
    assert [item.name for item in found.items.values()] == [DAMAGED]
    ((kept, reason),) = told
    assert says in reason
    assert kept.read_bytes() == bad
    assert kept.parent == tmp_path
    assert opened(tmp_path).load(boot_id="boot-1", now=30.0) == found
    passed = ProbePassed(scope=Scope(gpu=GPU), at=40.0)
    assert after(found, passed).items == {}


@pytest.mark.parametrize("step", range(20))
def test_killed_while_damage_is_dealt_with_the_next_start_still_knows_nothing(tmp_path, step):
    (tmp_path / NAME).write_bytes(b"torn")
    files = ScriptedFiles(fail_at=step, error=Killed())
    try:
        opened(tmp_path, files=files).load(boot_id="boot-1", now=20.0)
    except Killed:
        files.release()
    found = opened(tmp_path).load(boot_id="boot-1", now=30.0)
    assert [item.name for item in found.items.values()] == [DAMAGED]


def test_a_disk_that_takes_nothing_does_not_end_the_start(tmp_path):
    (tmp_path / NAME).write_bytes(b"torn")
    told = Told()
    files = ScriptedFiles(fail_at=2, error=OSError(errno.EROFS, "read-only"))
    file = opened(tmp_path, files=files, told=told)
    found = file.load(boot_id="boot-1", now=20.0)
    assert [item.name for item in found.items.values()] == [DAMAGED]
    ((path, reason),) = told
    assert path == tmp_path / NAME
    assert "cannot be replaced" in reason
    assert file.save(found, now=21.0) is None
    assert opened(tmp_path).load(boot_id="boot-1", now=30.0) == found


def test_a_file_that_cannot_be_read_counts_as_damaged(tmp_path):
    (tmp_path / NAME).mkdir()
    told = Told()
    found = opened(tmp_path, told=told).load(boot_id="boot-1", now=20.0)
    assert [item.name for item in found.items.values()] == [DAMAGED]
    assert "cannot read" in told[0][1]


def test_a_file_of_a_later_version_stops_the_start_and_stays_as_it_is(tmp_path):
    data = encode(EVIDENCE, node="n1").replace(b'"version":1', b'"version":2')
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(StateTooNew, match=r"evidence version 2, this Tessera reads up to 1; run"):
        opened(tmp_path).load(boot_id="boot-1", now=20.0)
    assert (tmp_path / NAME).read_bytes() == data


def test_fields_of_a_later_version_are_passed_over():
    body = json.loads(encode(EVIDENCE, node="n1").split(b"\n")[1])
    body["new"] = body["items"][0]["new"] = 1
    assert decode(signed(json.dumps(body)), node="n1", name="f") == EVIDENCE


def test_a_count_that_is_no_number_is_damage():
    body = json.loads(encode(EVIDENCE, node="n1").split(b"\n")[1])
    body["items"][0]["count"] = "7"
    with pytest.raises(StateDamaged, match=r"items\.0\.count"):
        decode(signed(json.dumps(body)), node="n1", name="f")


def test_a_write_that_failed_is_asked_for_again(tmp_path):
    files = ScriptedFiles(fail_at=3, error=OSError(errno.ENOSPC, "full"))
    file = opened(tmp_path, files=files)
    sick = after(Evidence(), fault(10.0))
    with pytest.raises(StateError, match=r"evidence\.json: No space left on device; free space"):
        file.save(sick, now=10.0)
    assert file.save(sick, now=10.1) is None
    assert opened(tmp_path).load(boot_id="boot-1", now=20.0) == sick
