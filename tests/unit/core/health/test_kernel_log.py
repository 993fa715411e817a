"""The corpus is read to the last line; what spans records; what is not believed."""

import pytest

from driver.core.health.kernel.lines import FallenOff
from driver.core.health.kernel.log import Forged, KernelLog, feed
from driver.core.health.kernel.record import KernelRecord, parse_record
from driver.core.health.kernel.xid import Xid
from driver.core.snapshot import PciAddress
from tests.unit.core.health.corpus import NAMES, described, entries, events, read

AT = PciAddress(domain=0, bus=0x3B, device=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_the_corpus_is_read_as_it_says(name):
    wrong = [
        (entry.raw, [described(event) for event in found], list(entry.expected))
        for entry, found in read(name)
        if [described(event) for event in found] != list(entry.expected)
    ]
    assert wrong == []


def test_the_corpus_is_large_and_has_every_code():
    found = [event for name in NAMES for _, events_ in read(name) for event in events_]
    assert sum(1 for name in NAMES for _ in entries(name)) >= 500
    assert {e.code for e in found if isinstance(e, Xid)} >= set(range(1, 177))


def test_d5_the_text_of_an_xid_is_what_follows_the_process():
    (event,) = events("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python3, Ch 00000008, intr 0")
    assert isinstance(event, Xid)
    assert event.text == "Ch 00000008, intr 0"


def test_the_log_itself_says_which_gpu_sits_where_and_the_newest_word_holds():
    one, other = ("GPU-" + digit * 36 for digit in "1a")
    state = KernelLog()
    for uuid in (one, other):
        line = f"3,1,1,-;NVRM: GPU at PCI:0000:3b:00: {uuid}\n".encode()
        state, _ = feed(state, parse_record(line))
    assert dict(state.gpus) == {AT: other}


def test_heads_without_an_end_are_bounded_and_the_newest_of_them_count():
    state = KernelLog()
    for bus in range(200):
        text = f"NVRM: The NVIDIA GPU 0000:{bus:02x}:00.0 (PCI ID: 10de:2330)"
        record = KernelRecord(sequence=bus, microseconds=bus, facility=0, level=3, text=text)
        state, _ = feed(state, record)
    assert len(state.heads) <= 32
    tail = "NVRM: fallen off the bus and is not responding to commands."
    _, found = feed(
        state, KernelRecord(sequence=9, microseconds=200, facility=0, level=3, text=tail)
    )
    assert found == (FallenOff(address=PciAddress(domain=0, bus=168, device=0)),)


def test_s8_a_line_in_the_user_facility_is_counted_and_not_believed():
    raw = b"11,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    _, found = feed(KernelLog(), parse_record(raw))
    assert found == (Forged(facility=1, text=raw[9:-1].decode()),)


def test_a_setting_makes_user_records_count_for_tests_on_the_real_device():
    raw = b"12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    _, (event,) = feed(KernelLog(), parse_record(raw), facilities=frozenset({0, 1}))
    assert isinstance(event, Xid)
