import errno
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driver.core.errors import StateError, StateTooNew
from driver.core.ids import ClaimUID
from driver.core.ledger import Entry
from driver.state.ledger import LedgerDir
from driver.state.ledger_file import encode
from tests.state.faults import ScriptedFiles, names
from tests.state.test_atomic import DURABLE_WRITE
from tests.state.test_ledger_file import ONE, sealed

TWO = replace(ONE, uid=ClaimUID("c0ffee-2"), name="infer")
Damage = list[tuple[Path, str]]
SECOND = 1_000_000_000
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def opened(
    path: Path, files: ScriptedFiles | None = None, damage: Damage | None = None
) -> LedgerDir:
    def on_damage(where: Path, reason: str) -> None:
        if damage is None:
            pytest.fail(f"{where} is damaged: {reason}")
        damage.append((where, reason))

    return LedgerDir(path, "n1", on_damage=on_damage, now=lambda: NOON, files=files)


def on_disk(path: Path) -> dict[ClaimUID, Entry]:
    return dict(opened(path).entries())


def test_entries_are_there_again_after_a_restart_and_readable_by_the_owner_alone(tmp_path):
    ledger = opened(tmp_path / "a" / "ledger")
    ledger.put(ONE)
    ledger.put(TWO)
    ledger.remove(ONE.uid)
    assert on_disk(tmp_path / "a" / "ledger") == {TWO.uid: TWO} == ledger.entries()
    assert (tmp_path / "a" / "ledger").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "ledger" / "c0ffee-2.json").stat().st_mode & 0o777 == 0o600


def test_a_put_costs_one_sync_of_the_file_and_one_of_the_folder(tmp_path):
    files = ScriptedFiles()
    ledger = opened(tmp_path, files)
    files.calls.clear()
    ledger.put(ONE)
    assert files.calls == DURABLE_WRITE


def test_entries_given_out_do_not_change_and_cannot_be_changed(tmp_path):
    ledger = opened(tmp_path)
    ledger.put(ONE)
    seen = ledger.entries()
    ledger.put(TWO)
    assert set(seen) == {ONE.uid}
    with pytest.raises(TypeError):
        seen[TWO.uid] = TWO  # type: ignore[index]


@pytest.mark.parametrize("step", range(len(DURABLE_WRITE)))
def test_after_a_failed_put_memory_says_what_a_restart_would_find(tmp_path, step):
    files = ScriptedFiles()
    ledger = opened(tmp_path, files)
    ledger.put(ONE)
    files.fail_at, files.error = len(files.calls) + step, OSError(errno.EIO, os.strerror(errno.EIO))
    changed = replace(ONE, boot_id="b2")
    with pytest.raises(StateError, match=r"c0ffee-1\.json"):
        ledger.put(changed)
    assert ledger.entries() == on_disk(tmp_path)
    ledger.put(changed)
    assert ledger.entries() == on_disk(tmp_path) == {ONE.uid: changed}


@pytest.mark.parametrize("step", range(5))
def test_a_removal_that_failed_half_way_is_finished_the_next_time(tmp_path, step):
    files = ScriptedFiles()
    ledger = opened(tmp_path, files)
    ledger.put(ONE)
    files.fail_at, files.error = len(files.calls) + step, OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(StateError, match="cannot remove"):
        ledger.remove(ONE.uid)
    assert ledger.entries() == {ONE.uid: ONE}
    files.calls.clear()
    files.fail_at = None
    ledger.remove(ONE.uid)
    assert files.count("fsync") == 1
    assert ledger.entries() == on_disk(tmp_path) == {}


def test_removing_an_unknown_claim_changes_nothing(tmp_path):
    files = ScriptedFiles()
    opened(tmp_path, files).remove(ClaimUID("nobody"))
    assert files.count("fsync") == 0


@pytest.mark.parametrize("uid", ["", "..", "../x", "a/b", ".hidden", "a.b", "a\0b", "ü", "x" * 129])
def test_a_uid_that_could_name_another_file_is_refused(tmp_path, uid):
    ledger = opened(tmp_path / "ledger")
    with pytest.raises(StateError, match="cannot be a file name"):
        ledger.put(replace(ONE, uid=ClaimUID(uid)))
    with pytest.raises(StateError, match="cannot be a file name"):
        ledger.remove(ClaimUID(uid))
    assert names(tmp_path) == ["ledger"]
    assert names(tmp_path / "ledger") == []


def test_damaged_files_are_set_aside_and_reported_and_the_start_goes_on(tmp_path):
    opened(tmp_path).put(ONE)
    whole = encode(ONE, node="n1")
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "renamed.json").write_bytes(whole)
    (tmp_path / "foreign.json").write_bytes(encode(ONE, node="n2"))
    (tmp_path / "notes.txt").write_text("not ours to judge")
    damage: Damage = []
    ledger = opened(tmp_path, damage=damage)
    assert set(ledger.entries()) == {ONE.uid}
    assert {where.name: reason for where, reason in damage} == {
        "empty.json.damaged-20261130T120000.000000Z": "empty.json: not two whole lines (0 bytes)",
        "foreign.json.damaged-20261130T120000.000000Z": (
            "foreign.json: written on node 'n2', this is 'n1'"
        ),
        "renamed.json.damaged-20261130T120000.000000Z": (
            "renamed.json: the file name is not that of claim 'c0ffee-1'"
        ),
    }
    kept = {where.name.partition(".")[0]: where for where, _ in damage}
    assert kept["renamed"].read_bytes() == whole
    assert names(tmp_path) == ["c0ffee-1.json", "damaged", "notes.txt"]
    assert on_disk(tmp_path) == {ONE.uid: ONE}


def test_a_file_of_a_later_version_stops_the_start_and_stays_as_it_is(tmp_path):
    later = sealed(b"{}", version=2)
    (tmp_path / "c0ffee-1.json").write_bytes(later)
    with pytest.raises(StateTooNew, match=r"c0ffee-1\.json"):
        opened(tmp_path)
    assert (tmp_path / "c0ffee-1.json").read_bytes() == later


def test_what_another_process_wrote_replaced_and_removed_is_seen_at_once(tmp_path):
    ours, theirs = opened(tmp_path), opened(tmp_path)
    ours.put(ONE)
    theirs.put(TWO)
    assert ours.entries() == theirs.entries() == {ONE.uid: ONE, TWO.uid: TWO}
    changed = replace(TWO, boot_id="b2")
    ours.put(changed)
    theirs.remove(ONE.uid)
    assert ours.entries() == theirs.entries() == {TWO.uid: changed}


def test_while_nothing_changes_the_folder_is_not_listed_again(tmp_path):
    opened(tmp_path).put(ONE)
    ledger = LedgerDir(
        tmp_path, "n1", on_damage=lambda *_: None, now_ns=lambda: time.time_ns() + SECOND
    )
    looks = ledger._view.looks
    for _ in range(10):
        assert ledger.entries() == {ONE.uid: ONE}
    assert ledger._view.looks == looks
    ledger.put(TWO)
    assert ledger.entries() == {ONE.uid: ONE, TWO.uid: TWO}
    assert ledger._view.looks == looks + 1


def test_what_was_written_a_moment_ago_may_change_again_under_the_same_time(tmp_path):
    """Two writes within one step of the kernel's clock leave the folder with one time."""
    ours, theirs = opened(tmp_path), opened(tmp_path)
    theirs.put(ONE)
    assert ours.entries() == {ONE.uid: ONE}
    before = tmp_path.stat().st_mtime_ns
    theirs.put(TWO)
    os.utime(tmp_path, ns=(before, before))
    assert ours.entries() == {ONE.uid: ONE, TWO.uid: TWO}


def test_our_own_writes_are_not_read_again(tmp_path, monkeypatch):
    ledger = opened(tmp_path)
    monkeypatch.setattr(ledger, "_read", lambda name: pytest.fail(f"{name} was read"))
    ledger.put(ONE)
    ledger.put(replace(ONE, boot_id="b2"))
    ledger.put(TWO)
    ledger.remove(TWO.uid)
    assert set(ledger.entries()) == {ONE.uid}


def test_a_file_that_is_damaged_later_is_set_aside_and_no_other_entry_suffers(tmp_path):
    damage: Damage = []
    ours, theirs = opened(tmp_path, damage=damage), opened(tmp_path)
    theirs.put(ONE)
    theirs.put(TWO)
    assert set(ours.entries()) == {ONE.uid, TWO.uid}
    (tmp_path / "half").write_bytes(encode(ONE, node="n1")[:-9])
    (tmp_path / "half").rename(tmp_path / "c0ffee-1.json")
    assert ours.entries() == {TWO.uid: TWO}
    ((where, reason),) = damage
    assert where.parent == tmp_path / "damaged"
    assert "c0ffee-1.json: not two whole lines" in reason
    assert ours.entries() == {TWO.uid: TWO}
    assert len(damage) == 1


def test_a_file_of_a_later_version_that_shows_up_is_told_and_what_was_known_of_it_stays(tmp_path):
    ledger = opened(tmp_path)
    ledger.put(ONE)
    later = sealed(b"{}", version=2)
    for uid in (ONE.uid, "c0ffee-9"):
        (tmp_path / "new").write_bytes(later)
        (tmp_path / "new").rename(tmp_path / f"{uid}.json")
    assert ledger.entries() == {ONE.uid: ONE}
    assert set(ledger.unread()) == {ONE.uid, "c0ffee-9"}
    assert "c0ffee-9.json has ledger version 2" in ledger.unread()[ClaimUID("c0ffee-9")]
    (tmp_path / "c0ffee-1.json").unlink()
    (tmp_path / "c0ffee-9.json").unlink()
    assert ledger.entries() == {}
    assert ledger.unread() == {}


def test_a_folder_in_the_place_of_a_file_is_set_aside_too(tmp_path):
    (tmp_path / "c0ffee-1.json").mkdir()
    damage: Damage = []
    ledger = opened(tmp_path, damage=damage)
    assert ledger.entries() == {}
    assert "Is a directory" in damage[0][1]
    assert damage[0][0].is_dir()
    ledger.put(ONE)
    assert on_disk(tmp_path) == {ONE.uid: ONE}


def test_a_damaged_file_that_cannot_be_moved_is_told_once_and_left(tmp_path):
    (tmp_path / "damaged").write_text("in the way")
    (tmp_path / "c0ffee-1.json").write_text("{")
    old = time.time_ns() - SECOND
    os.utime(tmp_path / "c0ffee-1.json", ns=(old, old))
    damage: Damage = []
    ledger = opened(tmp_path, damage=damage)
    for _ in range(3):
        assert ledger.entries() == {}
    ((where, reason),) = damage
    assert where == tmp_path / "c0ffee-1.json"
    assert "it cannot be set aside: cannot make the folder" in reason


def test_a_folder_that_cannot_be_read_is_an_error_but_for_those_who_only_look(tmp_path):
    ledger = opened(tmp_path / "ledger")
    ledger.put(ONE)
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    (tmp_path / "ledger").touch()
    with pytest.raises(StateError, match=r"cannot make the folder .*ledger: .*remove it"):
        ledger.entries()
    assert ledger.known() == {ONE.uid: ONE}
    (tmp_path / "ledger").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "ledger")
    assert ledger.entries() == {ONE.uid: ONE}


@pytest.mark.parametrize("settled", [True, False])
def test_a_folder_that_is_gone_is_told_and_made_again_empty(tmp_path, settled):
    damage: Damage = []
    later = SECOND if settled else 0
    ledger = LedgerDir(
        tmp_path / "ledger",
        "n1",
        on_damage=lambda *told: damage.append(told),
        now_ns=lambda: time.time_ns() + later,
    )
    ledger.put(ONE)
    assert ledger.entries() == {ONE.uid: ONE}
    shutil.rmtree(tmp_path / "ledger")
    assert ledger.entries() == {}
    assert damage == [
        (tmp_path / "ledger", "the folder was gone with all entries, and is made again")
    ]
    ledger.put(TWO)
    assert on_disk(tmp_path / "ledger") == {TWO.uid: TWO} == ledger.entries()


def spoil(file: Path) -> None:
    """One byte of the file's content is another one, in its place on the disk."""
    with file.open("r+b") as opened_file:
        opened_file.seek(-40, os.SEEK_END)
        opened_file.write(b"\0")


def test_what_memory_knows_of_a_file_that_spoils_is_written_again(tmp_path):
    damage: Damage = []
    ledger = opened(tmp_path, damage=damage)
    ledger.put(ONE)
    spoil(tmp_path / "c0ffee-1.json")
    ledger.put(TWO)
    assert ledger.entries() == {ONE.uid: ONE, TWO.uid: TWO} == on_disk(tmp_path)
    ((where, reason),) = damage
    assert (where.parent, where.exists()) == (tmp_path / "damaged", True)
    assert reason.endswith("written again from memory")
    ledger.remove(ONE.uid)
    assert ledger.entries() == {TWO.uid: TWO} == on_disk(tmp_path)


def test_but_not_what_another_plugin_has_ended_meanwhile(tmp_path):
    ours, theirs = opened(tmp_path), opened(tmp_path)
    ours.put(ONE)
    assert theirs.entries() == {ONE.uid: ONE}
    spoil(tmp_path / "c0ffee-1.json")
    theirs.remove(ONE.uid)
    assert ours.entries() == {} == on_disk(tmp_path)


def test_and_where_the_disk_takes_it_no_more_it_is_kept_in_memory(tmp_path):
    damage: Damage = []
    files = ScriptedFiles()
    ledger = opened(tmp_path, files, damage)
    ledger.put(ONE)
    spoil(tmp_path / "c0ffee-1.json")
    old = time.time_ns() - SECOND
    os.utime(tmp_path / "c0ffee-1.json", ns=(old, old))
    create = len(files.calls) + 2  # after the folder is opened and locked
    files.fail_at, files.error = create, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert ledger.entries() == {ONE.uid: ONE}
    ((where, reason),) = damage
    assert where == tmp_path / "c0ffee-1.json"
    assert "it cannot be set aside" in reason


def test_two_ledgers_over_one_folder_lose_nothing_while_both_write(tmp_path):
    ledgers = [opened(tmp_path), opened(tmp_path)]
    claims = [replace(ONE, uid=ClaimUID(f"c-{n}")) for n in range(64)]

    def work(number: int) -> None:
        ledger, other = ledgers[number % 2], ledgers[1 - number % 2]
        claim = claims[number]
        ledger.put(claim)
        assert other.entries()[claim.uid] == claim
        if number % 4 == 0:
            ledger.remove(claim.uid)
            assert claim.uid not in other.entries()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(64)))
    left = {c.uid: c for n, c in enumerate(claims) if n % 4}
    assert ledgers[0].entries() == ledgers[1].entries() == on_disk(tmp_path) == left


def test_a_dead_writers_temp_file_is_gone_after_the_start(tmp_path):
    (tmp_path / ".tessera-00.tmp").write_text("half")
    opened(tmp_path)
    assert names(tmp_path) == []


def test_many_threads_lose_nothing(tmp_path):
    ledger = opened(tmp_path)
    claims = [replace(ONE, uid=ClaimUID(f"c-{n}")) for n in range(48)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ledger.put, claims))
        list(pool.map(ledger.remove, [c.uid for c in claims[::2]]))
    assert ledger.entries() == on_disk(tmp_path) == {c.uid: c for c in claims[1::2]}


@pytest.mark.parametrize("place", ["ledger", "ledger/deeper"])
def test_a_file_where_the_folder_should_be_is_named(tmp_path, place):
    (tmp_path / "ledger").write_text("in the way")
    with pytest.raises(StateError, match=f"cannot make the folder {tmp_path / place}.*remove it"):
        opened(tmp_path / place)
