"""Evidence is stored before it is acted on, counts if it cannot be, and goes with the lead."""

from __future__ import annotations

import threading
from dataclasses import replace

from driver.core.health.signals import NODE, CannotTell, Need, ProbePassed, Scope, Source, Well
from driver.observe.metrics import Metrics
from driver.plugin.health.custody import Custody
from tests.plugin.health.shell import BOOT, FIRST, ONE, TWO, Counts, MemoryStore, Shell, fault


def test_what_is_taken_in_is_stored_before_anybody_is_told() -> None:
    store = MemoryStore()
    places = Shell().places
    custody = Custody(
        store,
        boot_id=BOOT,
        identity=places.identity,
        gpus=places.gpus,
        metrics=Counts(),
        clock=lambda: 50.0,
    )
    custody.lead()
    told: list[tuple[bool, int]] = []
    custody.subscribe(lambda weighty: told.append((weighty, len(store.kept.items))))
    assert custody.take(fault(at=50))
    assert custody.take(fault("xid-13", Need.NOTHING, at=50))
    assert told == [(True, 1), (False, 1)]


def test_what_one_look_has_found_is_stored_once_and_told_once() -> None:
    shell = Shell()
    told: list[bool] = []
    shell.custody.subscribe(told.append)
    before = shell.store.saves
    assert shell.custody.take(*(fault(on=each, at=1000) for each in (ONE, TWO)))
    assert (told, shell.store.saves - before) == ([True], 1)
    assert {i.scope.gpu for i in shell.store.kept.items.values()} == {ONE, TWO}


def test_what_is_only_shown_stays_so_beside_signals_that_say_nothing_new() -> None:
    shell = Shell()
    told: list[bool] = []
    shell.custody.subscribe(told.append)
    well = Well(source=Source.POLL, scope=Scope(gpu=ONE), name="row-remap-failure", at=1000)
    assert not shell.custody.take(well)
    assert shell.custody.take(well, fault("xid-13", Need.NOTHING, at=1000))
    assert told == [False]


def test_a_full_disk_keeps_no_sick_gpu_on_offer_and_what_was_seen_is_stored_later() -> None:
    shell = Shell()
    shell.store.broken = "no space left"
    shell.custody.take(fault(at=shell.now))
    assert shell.taints() == {FIRST: ["xid-79"]}
    assert "no space" in shell.custody.unsaved
    assert shell.wait(30) <= 10
    shell.store.broken = ""
    shell.wait(6)
    assert shell.custody.unsaved == ""
    assert {item.name for item in shell.store.kept.items.values()} == {"xid-79"}


def test_a_plugin_that_stands_by_refuses_what_the_one_that_leads_has_found() -> None:
    store = MemoryStore()
    leader, other = Shell(store=store), Shell(store=store, leads=False)
    leader.custody.take(fault(at=leader.now))
    assert not other.judged.refusal([(FIRST, ONE)])
    other.custody.refresh()
    assert "xid-79" in other.judged.refusal([(FIRST, ONE)])
    assert other.events == []
    leader.custody.refresh()
    assert leader.custody.evidence is store.kept


def test_a_plugin_that_comes_to_lead_reads_what_was_stored_and_tells_it_to_nobody_again() -> None:
    store = MemoryStore()
    other = Shell(store=store, leads=False)
    Shell(store=store).custody.take(fault(at=1000))
    other.custody.lead()
    other.told.lead()
    assert other.taints() == {FIRST: ["xid-79"]}
    assert other.events == []


def test_who_has_let_go_of_the_lead_overwrites_nothing_and_refuses_what_the_next_withholds() -> (
    None
):
    store = MemoryStore()
    old, new = Shell(store=store), Shell(store=store, leads=False)
    old.custody.take(fault("xid-13", Need.NOTHING, at=old.now))
    old.custody.follow()
    new.custody.lead()
    new.custody.take(fault(at=new.now))
    before = store.kept
    late = CannotTell(source=Source.POLL, scope=NODE, name="nvml-hangs", at=old.now)
    assert not old.custody.take(late)
    old.custody.keep()
    assert store.kept is before
    assert {item.name for item in store.kept.items.values()} == {"xid-13", "xid-79"}
    old.custody.refresh()
    assert "xid-79" in old.judged.refusal([(FIRST, ONE)])


def test_the_gpus_are_stored_when_they_are_found_and_known_to_the_next() -> None:
    store = MemoryStore()
    Shell(store=store)
    assert store.kept.gpus.keys() == {ONE, TWO}
    before = store.saves
    after = Shell(store=store)
    assert (after.custody.evidence.gpus, store.saves) == (store.kept.gpus, before)


def test_each_fault_is_counted_by_its_source_whoever_brings_it_and_a_storm_by_its_number() -> None:
    metrics = Metrics(version="1")
    places = Shell().places
    custody = Custody(
        MemoryStore(),
        boot_id=BOOT,
        identity=places.identity,
        gpus=places.gpus,
        metrics=metrics,
        clock=lambda: 50.0,
    )
    custody.lead()
    custody.take(fault(at=50), replace(fault("xid-13", Need.NOTHING, at=50), count=41))
    told = f'tessera_health_faults_total{{source="{Source.KERNEL.value}"}} 42.0'
    assert told in metrics.render().decode()


def test_what_is_put_off_is_stored_in_time_although_the_clock_is_set_back() -> None:
    shell = Shell()
    shell.custody.take(fault("xid-13", Need.NOTHING, at=shell.now))
    shell.set_back = 3600
    shell.wait(6)
    assert {item.name for item in shell.store.kept.items.values()} == {"xid-13"}


def test_faults_of_many_threads_are_all_there() -> None:
    shell = Shell()
    threads = [
        threading.Thread(
            target=lambda n=n: [
                shell.custody.take(fault(f"xid-{n}-{i}", at=1000, on=ONE if i % 2 else TWO))
                for i in range(4)
            ]
        )
        for n in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(shell.custody.evidence.items) == len(shell.store.kept.items) == 32


def test_what_a_source_that_was_switched_off_could_not_tell_is_not_waited_for() -> None:
    shell = Shell()
    silent = CannotTell(source=Source.DCGM, scope=Scope(gpu=ONE), name="dcgm", at=1000)
    shell.custody.take(silent, fault(at=1000))
    after = Custody(
        shell.store,
        boot_id=BOOT,
        identity=shell.places.identity,
        gpus=shell.places.gpus,
        metrics=shell.metrics,
        silent=[Source.DCGM],
        clock=shell.clock,
    )
    assert {item.name for item in after.evidence.items.values()} == {"xid-79"}


def test_a_probe_that_passed_is_proof_only_after_what_the_fault_needs_was_done() -> None:
    shell = Shell()
    shell.custody.take(fault("bad", Need.PROBE, at=1000), fault(at=1000))
    shell.now = 1010
    shell.custody.take(ProbePassed(scope=Scope(gpu=ONE), at=1005))
    assert {item.name for item in shell.custody.evidence.items.values()} == {"xid-79"}
