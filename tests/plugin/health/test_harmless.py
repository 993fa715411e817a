"""What a storm of application errors leaves in memory, and what it is summed up to."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

from driver.core.health.kernel.verdict import judge
from driver.core.health.kernel.verdict_known import Known
from driver.core.health.kernel.xid import parse_xid
from driver.core.health.signals import Need
from driver.plugin.health.harmless import SUMMED, Harmless, HarmlessSums, HarmlessTexts, harmless
from tests.plugin.health.shell import CATALOGUE, ONE, Shell
from tests.plugin.stubs import gpu

KNOWN = Known(catalogue=CATALOGUE, gpus={gpu(1).pci: ONE})


def read(code: int, more: str = "pid=7, name=python3", known: Known = KNOWN) -> Harmless | None:
    event = parse_xid(f"NVRM: Xid (PCI:{gpu(1).pci!s:.10}): {code}, {more}")
    assert event is not None
    return harmless(judge(event, known, at=5.0), event)


def seen(code: int, more: str = "pid=7, name=python3") -> Harmless:
    found = read(code, more)
    assert found is not None
    return found


def test_only_what_needs_nothing_and_says_nothing_else_is_harmless() -> None:
    assert seen(31).fault.need is Need.NOTHING
    assert read(79) is None
    assert read(31, known=replace(KNOWN, branch=580, actions={ONE: 1})) is None


def test_a_text_is_known_as_long_as_nothing_else_is_known_of_the_gpus() -> None:
    texts, one = HarmlessTexts(), seen(31)
    texts.put(b"text", KNOWN, one)
    assert texts.get(b"text", KNOWN) is one
    assert texts.get(b"text", replace(KNOWN, branch=580)) is None


def test_however_many_and_long_texts_come_few_are_kept() -> None:
    texts, one = HarmlessTexts(), seen(31)
    for n in range(10_000):
        texts.put(b"%d" % n * (1000 if n % 2 else 1), KNOWN, one)
    kept = [text for text in texts._texts if texts.get(text, KNOWN)]
    assert 0 < sum(map(sys.getsizeof, kept)) < 512 * 1024


def test_what_differs_in_its_process_alone_is_one_sum_and_another_engine_is_another() -> None:
    sums = HarmlessSums()
    for n in range(50):
        sums.add(seen(45, f"pid={n}, name=a{n}, Ch 8"), 10.0 + n, now=0.0)
    sums.add(seen(13, "pid=7, name=a, Graphics Exception on (GPC 1, TPC 1, SM 1)"), 1.0, now=0.0)
    sums.add(seen(13, "pid=7, name=a, Graphics Exception on (GPC 2, TPC 1, SM 1)"), 1.0, now=0.0)
    first, *places = sums.take()
    assert [s.count for s in first.signals()] == [1, 49]
    assert {s.at for s in first.signals()} == {59.0}
    assert "(49)" in first.signals()[0].detail
    assert [len(each.signals()) for each in places] == [1, 1]


def test_a_sum_is_complete_a_second_after_its_first_line_and_then_begins_anew() -> None:
    sums, one = HarmlessSums(), seen(31)
    assert sums.rest(0.0) is None
    assert sums.add(one, 5.0, now=10.0) == (True, True)
    assert sums.add(one, 5.0, now=10.9) == (False, False)
    assert sums.add(seen(13), 5.0, now=10.9) == (True, False)
    assert sums.rest(10.5) == SUMMED - 0.5
    assert sums.rest(11.5) == 0.0
    assert len(sums.take()) == 2
    assert sums.rest(11.5) is None
    assert sums.add(one, 5.0, now=20.0) == (True, True)


def test_no_line_is_lost_between_two_sums() -> None:
    sums, one, done = HarmlessSums(), seen(31), threading.Event()
    total = 0

    def count() -> None:
        for _ in range(20_000):
            sums.add(one, 5.0, now=0.0)
        done.set()

    thread = threading.Thread(target=count)
    thread.start()
    while not done.is_set():
        total += sum(each.count for each in sums.take())
    thread.join()
    assert total + sum(each.count for each in sums.take()) == 20_000


def test_a_storm_is_counted_by_its_lines_and_asks_for_advice_until_its_last() -> None:
    shell = Shell()
    for _ in range(5000):
        shell.xid(31)
        shell.now += 0.001
        shell.kernel._pass_on()
    shell.now += 2
    shell.kernel._pass_on()
    assert shell.metrics.count["told"] == 5000
    ended = shell.now - 2
    assert shell.kernel._unsettled.settled({ONE: ended + 4.9}) == []
    assert shell.kernel._unsettled.settled({ONE: ended + 5.1}) != []
