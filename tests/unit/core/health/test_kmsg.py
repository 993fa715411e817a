"""A record of /dev/kmsg, and everything that is none."""

import pytest

from driver.core.health.kernel.record import (
    TEXT_LIMIT,
    KernelRecord,
    UnreadableRecord,
    parse_record,
)


def test_a_record_has_number_time_facility_level_and_text():
    assert parse_record(b"3,339,5140900,-;NVRM: loading\n SUBSYSTEM=pci\n DEVICE=+pci:x\n") == (
        KernelRecord(sequence=339, microseconds=5140900, facility=0, level=3, text="NVRM: loading")
    )


@pytest.mark.parametrize(
    ("priority", "facility", "level"), [(0, 0, 0), (6, 0, 6), (12, 1, 4), (30, 3, 6), (191, 23, 7)]
)
def test_the_facility_tells_who_wrote_it(priority, facility, level):
    record = parse_record(b"%d,1,2,-;x" % priority)
    assert isinstance(record, KernelRecord)
    assert (record.facility, record.level) == (facility, level)


def test_a_prefix_may_have_more_fields_than_we_know():
    record = parse_record(b"6,1,2,-,caller=T17,new=1;text;with;more\n")
    assert isinstance(record, KernelRecord)
    assert record.text == "text;with;more"


def test_escaped_bytes_become_text_again_and_bad_ones_a_mark():
    record = parse_record(rb"6,1,2,-;a\x0ab \xe6\x97\xa5 \xff \x5cx41")
    assert isinstance(record, KernelRecord)
    assert record.text == "a\nb \u65e5 \ufffd \\x41"


def test_a_text_without_end_is_cut_and_says_so():
    record = parse_record(b"6,1,2,-;" + b"x" * 1_000_000)
    assert isinstance(record, KernelRecord)
    assert (len(record.text), record.cut) == (TEXT_LIMIT, True)


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"\x00\xff", b"6,1,2", b"6,1,2,-", b"a,b,c,-;x", b"6,-1,2,-;x", b";x"]
)
def test_what_is_no_record_is_a_value_that_can_be_shown(raw):
    record = parse_record(raw)
    assert isinstance(record, UnreadableRecord)
    assert record.shown.isprintable()
