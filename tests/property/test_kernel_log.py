"""Whatever stands in the kernel's log, reading and judging it never fails, and costs little."""

import json
import time

import pytest
from hypothesis import given, strategies as st

from driver.config.catalogue import load_catalogue
from driver.core.health.kernel.log import KernelLog, feed
from driver.core.health.kernel.record import TEXT_LIMIT, KernelRecord, parse_record
from driver.core.health.kernel.verdict import judge
from driver.core.health.kernel.verdict_known import Known
from driver.core.health.signals import Fault, Need
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress

CATALOGUE = load_catalogue()
GPU = GpuUuid("GPU-1")
KNOWN = Known(catalogue=CATALOGUE, branch=580, gpus={PciAddress(domain=0, bus=59, device=0): GPU})

PIECES = st.sampled_from(
    [
        "NVRM: Xid (PCI:0000:3b:00",
        "):",
        " 79",
        " 149",
        " 154",
        ", ",
        "pid=",
        "name=",
        " GPU-I:01",
        " GPU-CI:00",
        "GPU recovery action changed from 0x0 (None) to 0x",
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: fallen off the bus and is not responding",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 23001, Fatal, Link ",
        "NETIR_LINK_DOWN Fatal XC0 i1 Link -1 (0x11 0x0)",
        "NVLink: fatal error detected on link 3(0x0, 0x0, 0x1, 0x0, 0x0, 0x0, 0x0)",
        "\\x0a",
        "\u0663",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join)
RAWS = st.binary(max_size=400) | st.tuples(
    st.integers(0, 200), st.integers(0, 2**64), st.integers(0, 2**40), TEXTS
).map(lambda parts: f"{parts[0]},{parts[1]},{parts[2]},-;{parts[3]}\n".encode())


@given(st.lists(RAWS, max_size=8))
def test_any_records_are_read_and_judged_without_an_error(raws):
    state = KernelLog()
    for raw in raws:
        record = parse_record(raw)
        if isinstance(record, KernelRecord):
            assert len(record.text) <= TEXT_LIMIT
        state, events = feed(state, record)
        for event in events:
            signals = judge(event, KNOWN, at=1.0).signals
            assert all(s.scope.gpu in {GPU, None} for s in signals if isinstance(s, Fault))


@given(st.integers(8, 200), TEXTS)
def test_nothing_from_another_facility_ever_withholds(priority, text):
    _, events = feed(KernelLog(), parse_record(f"{priority},1,2,-;{text}".encode()))
    assert all(judge(event, KNOWN, at=1.0).signals == () for event in events)


@given(st.text(min_size=1, max_size=15), st.sampled_from([13, 31, 43, 45]))
def test_a_name_that_a_program_gives_itself_never_makes_its_fault_a_worse_one(name, code):
    line = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name={name}, Ch 00000018"
    _, events = feed(KernelLog(), parse_record(b"3,1,2,-;" + line.encode("utf-8", "replace")))
    faults = [s for event in events for s in judge(event, KNOWN, at=1.0).signals]
    assert [f.need for f in faults if isinstance(f, Fault)] == [Need.NOTHING]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name=x, Ch 00000018",
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=9, name=x, Exception on (GPC 7, TPC 3, SM 0): x",
        "NVRM: nothing that we know of",
        "eth0: link becomes ready",
    ],
)
def test_a_line_costs_no_more_than_a_few_objects_of_json(line):
    """Ten thousand in ten seconds are a tenth of a core then, on any machine of today."""
    raws = [f"3,{n},{n},-;{line}\n".encode() for n in range(10_000)]
    ratios = [_core_seconds(raws) / _floor(len(raws)) for _ in range(3)]
    assert min(ratios) < 6, ratios


def _floor(times):
    """What the same run pays for JSON of a similar size, there and back."""
    record = {f"field-{n}": ["a text", n, {"deep": True}] for n in range(4)}
    start = time.process_time()
    for _ in range(times):
        json.loads(json.dumps(record))
    return time.process_time() - start


def _core_seconds(raws):
    state, start = KernelLog(), time.process_time()
    for raw in raws:
        state, events = feed(state, parse_record(raw))
        for event in events:
            judge(event, KNOWN, at=1.0)
    return time.process_time() - start
