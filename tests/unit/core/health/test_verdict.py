"""What every code demands, with and without a recovery action; and the rules around the table."""

from pathlib import Path

import pytest

from driver.config.catalogue import load_catalogue
from driver.core.health.kernel.catalogue import XidClass
from driver.core.health.kernel.lines import Trouble
from driver.core.health.kernel.record import UnreadableRecord
from driver.core.health.kernel.verdict import judge
from driver.core.health.kernel.verdict_known import NO_JUDGEMENT, Known
from driver.core.health.kernel.verdict_lines import LINES
from driver.core.health.kernel.verdict_recovery import branch_of, recovery_action, recovery_faults
from driver.core.health.kernel.verdict_xid import judge_xid
from driver.core.health.kernel.xid import Xid
from driver.core.health.signals import NODE, Fault, Need, Scope, Source, Well, stronger
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from tests.unit.core.health.corpus import events

CATALOGUE = load_catalogue()
AT = PciAddress(domain=0, bus=0x3B, device=0)
GPU = GpuUuid("GPU-9a613ad4-057b-4fb1-8572-ae2d3c112a92")
TABLE = Path(__file__).parents[3] / "data" / "xid_verdicts.txt"
ROWS = [line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#")]
ACTIONS = (None, 0, 1, 2, 4, 3, 5)
"""In the order of the table's columns; two more columns follow for settled 0 and 3."""


def known(action=None, *, branch=595, settled=False, gpus=None):
    actions = {} if action is None else {GPU: action}
    gpus = {AT: GPU} if gpus is None else gpus
    return Known(catalogue=CATALOGUE, branch=branch, gpus=gpus, actions=actions, settled=settled)


def judged(line, *, action=None, branch=595, settled=False):
    (event,) = events(line)
    return judge(event, known(action, branch=branch, settled=settled), at=5.0)


def faults(judgement):
    return [signal for signal in judgement.signals if isinstance(signal, Fault)]


def worst(judgement):
    need = Need.NOTHING
    for fault in faults(judgement):
        need = stronger(need, fault.need)
    return need


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_code_demands_what_the_table_says(row):
    event = Xid(address=AT, code=int(row[0]))
    found = [worst(judge(event, known(action), at=5.0)) for action in ACTIONS]
    found += [worst(judge(event, known(action, settled=True), at=5.0)) for action in (0, 3)]
    assert [str(need) for need in found] == row[1:]


def test_the_table_is_of_all_codes():
    assert [int(row[0]) for row in ROWS] == sorted(CATALOGUE.xids) == list(range(1, 177))


def test_a_code_of_a_later_driver_is_seen_and_decided_by_the_action_or_a_probe():
    for action, need in ((None, Need.PROBE), (0, Need.PROBE), (1, Need.RESET), (2, Need.REBOOT)):
        found = judged("NVRM: Xid (PCI:0000:3b:00): 250, news", action=action)
        assert worst(found) is need
        assert faults(found)[0].name == "xid-250"
        assert found.ask_again == GPU


@pytest.mark.parametrize(
    ("branch", "need"), [(550, Need.RESET), (None, Need.RESET), (595, Need.PROBE)]
)
def test_none_overrules_a_code_only_where_this_branch_lets_the_code_drive_the_action(branch, need):
    line = "NVRM: Xid (PCI:0000:3b:00): 48, DBE"
    assert worst(judged(line, action=0, branch=branch, settled=True)) is need


def test_of_whom_a_fault_is_depends_on_the_message_and_on_the_code():
    part = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): "
    for code, scope in (
        (48, Scope(gpu=GPU, gi=5, ci=1)),
        (109, Scope(gpu=GPU, gi=5, ci=1)),
        (79, Scope(gpu=GPU)),
        (95, Scope(gpu=GPU)),
        (119, Scope(gpu=GPU)),
    ):
        assert faults(judged(f"{part}{code}, x"))[0].scope == scope
    with_action = judged(f"{part}48, x", action=1)
    assert [f.scope for f in faults(with_action)] == [Scope(gpu=GPU, gi=5, ci=1), Scope(gpu=GPU)]


def test_a_gpu_that_is_not_ours_is_shown_and_takes_no_other_away():
    (event,) = events("NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.")
    (fault,) = faults(judge(event, known(), at=5.0))
    assert (fault.scope, fault.need, fault.place) == (NODE, Need.WATCH, "0000:99:00.0")


def test_171_and_172_are_evidence_of_48():
    lines = [f"NVRM: Xid (PCI:0000:3b:00): {code}, x" for code in (48, 171, 172)]
    assert {fault.name for line in lines for fault in faults(judged(line))} == {"xid-48"}


def test_power_smoothing_that_works_again_takes_its_own_evidence_back():
    found = judged("NVRM: Xid (PCI:0000:3b:00): 162, x").signals
    assert Well(source=Source.KERNEL, scope=Scope(gpu=GPU), name="xid-163", at=5.0) in found


@pytest.mark.parametrize(
    ("text", "branch", "action", "need"),
    [
        ("94, pid=7, Contained: SM (0x1). RST: No, D-RST: No", 550, None, Need.WATCH),
        ("94, pid=7, Contained: SM (0x1). RST: No, D-RST: Yes", 550, None, Need.RESET),
        ("94, pid=7, Contained: SM (0x1). RST: Yes, D-RST: No", 580, 0, Need.WATCH),
        ("95, Uncontained: FBHUB. RST: Yes, D-RST: No", 550, None, Need.RESET),
    ],
)
def test_the_flags_in_the_text_count_where_no_action_can_be_read(text, branch, action, need):
    line = f"NVRM: Xid (PCI:0000:3b:00): {text}"
    assert worst(judged(line, branch=branch, action=action)) is need


@pytest.mark.parametrize(
    ("registers", "need"),
    [
        ("0x1, 0x0, 0x0, 0x0, 0x0", Need.NOTHING),
        ("0x800001, 0x0, 0x0, 0x0, 0x0", Need.NOTHING),
        ("0x100000, 0x0, 0x0, 0x0, 0x0", Need.WATCH),
        ("0x0, 0x0, 0x0, 0x10000, 0x0", Need.WATCH),
        ("0x0, 0x0, 0x0, 0x40000, 0x0", Need.RESET),
        ("0x0, 0x0, 0x0, 0x0, 0x24900000", Need.WATCH),
        ("0x10, 0x0, 0x0, 0x0, 0x0", Need.RESET),
        ("0x100001, 0x0, 0x1, 0x0, 0x0", Need.RESET),
        ("0x0, 0x0, 0x10000, 0x0, 0x0", Need.RESET),
        ("0x0, 0x0, 0x0, 0x0, 0x0", Need.RESET),
    ],
)
def test_the_registers_of_a_link_decide_what_74_demands(registers, need):
    line = f"NVRM: Xid (PCI:0000:3b:00): 74, NVLink: error on link 3({registers}, 0x0, 0x0)"
    found = judged(line, branch=550)
    assert (worst(found), faults(found)[0].place) == (need, "link3")
    assert worst(judged("NVRM: Xid (PCI:0000:3b:00): 74, NVLink: error on link 3")) is Need.RESET


@pytest.mark.parametrize(
    ("code", "fatal", "need"),
    [
        (20001, "Non-fatal", Need.NOTHING),
        (20001, "Fatal", Need.PROBE),
        (12028, "Non-fatal", Need.WATCH),
        (11001, "Non-fatal", Need.WATCH),
        (11001, "Fatal", Need.REBOOT),
        (23001, "Fatal", Need.REBOOT),
        (10003, "Non-fatal", Need.NOTHING),
        (29999, "Non-fatal", Need.WATCH),
        (29999, "Fatal", Need.REBOOT),
    ],
)
def test_what_a_switch_says_is_of_the_whole_node(code, fatal, need):
    (fault,) = faults(
        judged(f"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {code}, {fatal}, Link 32 x")
    )
    assert (fault.scope, fault.need) == (NODE, need)
    assert (fault.name, fault.place) == (f"sxid-{code}", "nvswitch3-link32")


def test_further_lines_of_a_switch_event_and_what_is_no_message_say_nothing():
    assert judged("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 23001, Data {0x4}") == NO_JUDGEMENT
    assert judge(UnreadableRecord(shown="b''"), known(), at=5.0) == NO_JUDGEMENT


def test_every_line_without_an_xid_has_a_demand_and_pcie_errors_of_others_have_none():
    assert set(LINES) == set(Trouble)
    fatal = "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:{}:00.0"
    assert worst(judged(fatal.format("3b"))) is Need.PROBE
    assert judged(fatal.format("17")) == NO_JUDGEMENT


def test_a_line_with_a_minor_number_finds_its_gpu():
    (event,) = events("NVRM: rm_init_adapter failed, device minor number 4")
    (fault,) = faults(judge(event, Known(catalogue=CATALOGUE, minors={4: GPU}), at=5.0))
    assert (fault.scope, fault.need) == (Scope(gpu=GPU), Need.PROBE)


def test_a_complaint_that_cannot_be_read_is_left_to_a_probe():
    found = judged("NVRM: Xid (PCI:0000:3b:00): seventy-nine")
    assert (worst(found), found.ask_again) == (Need.PROBE, GPU)
    (event,) = events("NVRM: Xid (PCI:0000:3b")
    assert worst(judge(event, known(), at=5.0)) is Need.WATCH


def test_polling_the_action_gives_a_fault_or_the_proof_that_nothing_is_asked():
    well = recovery_faults(0, 580, gpu=GPU, at=5.0)
    assert well == Well(source=Source.POLL, scope=Scope(gpu=GPU), name="recovery-action", at=5.0)
    found = {value: recovery_faults(value, 580, gpu=GPU, at=5.0) for value in range(1, 10)}
    needs = {value: fault.need for value, fault in found.items() if isinstance(fault, Fault)}
    assert needs == {
        1: Need.RESET,
        2: Need.REBOOT,
        3: Need.WATCH,
        4: Need.RESET,
        5: Need.RESET,
        6: Need.RESET,
        7: Need.REBOOT,
        8: Need.RESET,
        9: Need.RESET,
    }


@pytest.mark.parametrize(
    ("version", "branch"), [("580.95.05", 580), ("595", 595), ("", None), ("r580", None)]
)
def test_a_branch_is_the_first_number_of_a_version(version, branch):
    assert branch_of(version) == branch


def test_codes_that_latch_are_those_that_need_somebody_to_act():
    assert {row.cls for row in CATALOGUE.xids.values() if row.latch} == {
        XidClass.RESET,
        XidClass.REBOOT,
        XidClass.OPERATOR,
    }
    assert recovery_action(5, None) == "unknown"


def test_an_xid_of_nvmls_needs_no_address_and_says_from_whom_it_is():
    event = Xid(code=48, gi=5, ci=0)
    found = judge_xid(event, known(), at=5.0, source=Source.EVENTS, gpu=GPU)
    (fault,) = faults(found)
    assert (fault.source, fault.scope) == (Source.EVENTS, Scope(gpu=GPU, gi=5, ci=0))
    (nowhere,) = faults(judge_xid(event, known(), at=5.0, source=Source.EVENTS))
    assert (nowhere.scope, nowhere.need, nowhere.place) == (NODE, Need.WATCH, "")


def test_off_the_bus_of_a_gpu_that_nobody_names_is_shown_on_the_node():
    (fault,) = faults(judged("NVRM: fallen off the bus and is not responding to commands."))
    assert (fault.scope, fault.name, fault.need) == (NODE, "xid-79", Need.WATCH)


def test_a_driver_line_of_a_gpu_that_is_not_ours_takes_no_other_away():
    (fault,) = faults(judged("NVRM: GPU 0000:99:00.0: RmInitAdapter failed! (0x22:0x40:894)"))
    assert (fault.scope, fault.need) == (NODE, Need.WATCH)


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ("pid=7, name=trainer, ", "; process trainer (7): Ch 18"),
        ("pid=7, ", "; process unknown (7): Ch 18"),
        ("pid='<unknown>', name=trainer, ", "; process trainer: Ch 18"),
        ("", "program: Ch 18"),
    ],
)
def test_the_detail_names_meaning_process_and_text(context, says):
    (fault,) = faults(judged(f"NVRM: Xid (PCI:0000:3b:00): 43, {context}Ch 18"))
    assert fault.detail.endswith(says)
    assert fault.detail.startswith("channel reset after a fault of the program")
