"""Public reports of monitors that got it wrong, as cases: see `docs/cases.md` for their ids."""

import pytest

from driver.config.catalogue import load_catalogue
from driver.core.health.kernel.lines import GpuNamed
from driver.core.health.kernel.nvlink import Nvlink5
from driver.core.health.kernel.verdict import judge
from driver.core.health.kernel.verdict_known import Known
from driver.core.health.kernel.verdict_xid import judge_xid
from driver.core.health.kernel.xid import NVLINK5, Xid
from driver.core.health.signals import Fault, Need, Scope, Source, Well
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from tests.unit.core.health.corpus import events

CATALOGUE = load_catalogue()
AT = PciAddress(domain=0, bus=0x3B, device=0)
GPU = GpuUuid("GPU-9a613ad4-057b-4fb1-8572-ae2d3c112a92")
XID = "NVRM: Xid (PCI:0000:3b:00): "
WITHHELD = {Need.RESET, Need.REBOOT, Need.OPERATOR}


def judged(line, *, action=None, branch=580, settled=False, gpus=None):
    actions = {} if action is None else {GPU: action}
    gpus = {AT: GPU} if gpus is None else gpus
    (event,) = events(line)
    return judge(
        event,
        Known(catalogue=CATALOGUE, branch=branch, gpus=gpus, actions=actions, settled=settled),
        at=5.0,
    )


def faults(line, **kwargs):
    return [s for s in judged(line, **kwargs).signals if isinstance(s, Fault)]


def withheld(line, **kwargs):
    return any(f.need in WITHHELD and not f.injected for f in faults(line, **kwargs))


def test_d1_off_the_bus_without_an_xid_is_the_same_evidence_as_the_xid_that_may_follow():
    (plain,) = faults("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    (xid,) = faults(f"{XID}79, GPU has fallen off the bus.")
    assert (plain.name, plain.scope, plain.need) == (xid.name, xid.scope, xid.need)
    assert (plain.need, plain.scope) == (Need.REBOOT, Scope(gpu=GPU))


def test_d3_an_xid_of_a_lost_gpu_finds_it_by_the_line_that_named_it():
    named, xid = events(f"NVRM: GPU at PCI:0000:3b:00: {GPU}", f"{XID}79, GPU has fallen off")
    assert isinstance(named, GpuNamed)
    known = Known(catalogue=CATALOGUE, branch=580, gpus={named.address: named.gpu})
    (fault,) = judge(xid, known, at=5.0).signals
    assert isinstance(fault, Fault)
    assert (fault.scope, fault.need) == (Scope(gpu=GPU), Need.REBOOT)


def test_d4_an_injected_error_is_recorded_and_marked_and_a_real_one_withholds():
    line = XID + "149, NETIR_LINK_DOWN Fatal XC0 i{} Link 03 (0x00100011 0x0 0x0 0x0)"
    (test,), (real,) = faults(line.format(1)), faults(line.format(0))
    assert (test.injected, real.injected) == (True, False)
    assert not withheld(line.format(1))
    assert withheld(line.format(0))


def test_d6_the_same_number_is_another_row_in_another_driver_branch():
    remap = Nvlink5(unit="RLW_REMAP", fatal=False, link=0, info=0b00100_00110, status=1)
    rxpipe = Nvlink5(unit="RLW_RXPIPE", fatal=False, link=0, info=0b00100_00110, status=1)
    table = CATALOGUE.nvlink5
    old, new = table.find(145, remap, 570), table.find(145, rxpipe, 580)
    assert old is not None
    assert new is not None
    assert (old.outcome, new.outcome) == ("follow", "reset")
    assert table.find(145, remap, 580) is None
    assert table.find(145, rxpipe, 570) is None


def test_d6_the_variant_bit_of_a_row_moves_with_the_branch():
    for branch, bit in ((570, 10), (580, 7)):
        info = (6 << 5 if branch < 575 else 6) | 1 << bit
        error = Nvlink5(unit="RLW_RXPIPE", fatal=False, link=0, info=info, status=2)
        found = CATALOGUE.nvlink5.find(145, error, branch)
        assert found is not None
        assert found.outcome == "reset"


@pytest.mark.parametrize("branch", [570, 580])
def test_d7_rows_to_ignore_do_not_withhold_and_rows_to_reset_do(branch):
    for row in CATALOGUE.nvlink5.rows:
        info = row.cause << 20 | (row.old << 5 if branch < 575 else row.new)
        status = min(row.statuses, default=0)
        word = "Nonfatal" if row.fatal is False else "Fatal"
        unit = min(row.units)
        line = f"{XID}{row.code}, {unit} {word} XC0 i0 Link 01 ({info:#010x} {status:#010x} 0x0)"
        assert withheld(line, branch=branch) == (row.outcome == "reset"), line


@pytest.mark.parametrize(("word", "need"), [("Fatal", Need.RESET), ("Nonfatal", Need.WATCH)])
def test_d7_a_row_outside_of_the_table_is_judged_by_the_drivers_own_word(word, need):
    line = f"{XID}146, TLW_NEW {word} XC0 i0 Link 01 (0x0000003f 0x00000001 0x0)"
    assert [f.need for f in faults(line)] == [need]


def test_d8_where_word_and_table_contradict_each_other_the_recovery_action_decides():
    line = f"{XID}145, RLW_TAGSTATE Nonfatal XC0 i0 Link 01 (0x00000008 0x00000002 0x0)"
    assert [f.need for f in faults(line, action=0)] == [Need.WATCH]
    assert withheld(line, action=1)


def test_d16_the_recovery_action_overrules_the_list_and_the_list_stands_in_for_it():
    line = f"{XID}31, pid=7, name=python3, Ch 00000008"
    assert not withheld(line, action=0)
    assert withheld(line, action=1)
    assert not withheld(line)
    assert withheld(f"{XID}119, Timeout after 45s")


def test_d17_94_is_degraded_and_109_follows_the_action():
    line = f"{XID}94, pid=7, name=x, Contained: SM (0x1). RST: No, D-RST: No"
    assert [f.need for f in faults(line, action=0)] == [Need.WATCH]
    assert [f.need for f in faults(f"{XID}109, x", action=0)] == [Need.PROBE]
    assert withheld(f"{XID}109, x", action=1)


def test_d23_122_is_not_withheld():
    assert not withheld(f"{XID}122, x")


def test_d25_62_in_the_log_alone_withholds():
    assert withheld(f"{XID}62, 2e0f(5c34) 00000000")


def test_d29_a_flood_of_45_is_never_evidence():
    state = [judged(f"{XID}45, pid={n}, name=x, Ch 00000018") for n in range(11_760)]
    assert {f.need for j in state for f in j.signals if isinstance(f, Fault)} == {Need.NOTHING}
    assert {j.ask_again for j in state} == {None}


def test_d34_the_catalogue_counts_at_once_and_the_action_is_asked_for_again():
    early = judged(f"{XID}119, Timeout after 45s", action=0)
    assert withheld(f"{XID}119, Timeout after 45s", action=0)
    assert early.ask_again == GPU
    app = judged(f"{XID}31, pid=7, name=x, Ch 00000008", action=0)
    assert not withheld(f"{XID}31, pid=7, name=x, Ch 00000008", action=0)
    assert app.ask_again == GPU
    assert withheld(f"{XID}31, pid=7, name=x, Ch 00000008", action=1, settled=True)
    assert judged(f"{XID}31, x", action=1, settled=True).ask_again is None
    assert judged(f"{XID}31, x", branch=550).ask_again is None


@pytest.mark.parametrize(
    ("branch", "value", "name", "is_withheld"),
    [
        (580, 5, "Unknown", True),
        (595, 5, "Unknown", False),
        (580, 5, "Recover IMEX Domain", False),
        (580, 9, "Unknown", True),
        (595, 3, "Drain P2P", False),
        (595, 6, "Bus Reset", True),
        (None, 5, "", True),
    ],
)
def test_d35_a_number_with_two_meanings_is_read_by_branch(branch, value, name, is_withheld):
    line = f"{XID}154, GPU recovery action changed from 0x0 (None) to {value:#x} ({name})"
    assert withheld(line, branch=branch) == is_withheld


def test_d36_79_stays_a_matter_of_a_reboot_although_the_driver_asks_for_a_reset():
    for settled in (False, True):
        found = faults(f"{XID}79, GPU has fallen off", action=1, settled=settled)
        assert [(f.name, f.need) for f in found] == [
            ("xid-79", Need.REBOOT),
            ("recovery-action", Need.RESET),
        ]


def test_d37_the_rate_limit_line_of_the_system_processor_asks_for_a_probe_and_the_action():
    line = "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:3b:00 (printing 1 of 30)."
    found = judged(line)
    (fault,) = found.signals
    assert isinstance(fault, Fault)
    assert (fault.name, fault.need, fault.scope) == ("gsp-rpc-errors", Need.PROBE, Scope(gpu=GPU))
    assert found.ask_again == GPU


def test_s8_a_forged_line_judges_nothing():
    forged = r"x\x0aNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    (event,) = events(f"NVRM: this record quotes {forged}")
    known = Known(catalogue=CATALOGUE, branch=580, gpus={AT: GPU})
    assert judge(event, known, at=5.0).signals == ()


def test_154_back_to_none_is_positive_evidence_of_the_whole_gpu():
    line = f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    (signal,) = judged(line).signals
    expected = Well(source=Source.KERNEL, scope=Scope(gpu=GPU), name="recovery-action", at=5.0)
    assert signal == expected


def test_13_says_where_on_the_chip_so_that_repeats_at_one_place_can_be_told():
    lines = ("GPC 7, TPC 3, SM 0", "GPC 7, TPC 3, SM 1", "GPC 2, TPC 3, SM 0")
    found = [faults(f"{XID}13, Graphics SM Warp Exception on ({place}): x")[0] for place in lines]
    assert [f.place for f in found] == ["gpc7-tpc3", "gpc7-tpc3", "gpc2-tpc3"]
    assert {f.need for f in found} == {Need.NOTHING}


def test_31_names_the_program_since_faults_of_different_ones_speak_against_the_gpu():
    found = faults(f"{XID}31, pid=7, name=trainer, Ch 00000008")
    assert [(f.place, f.need) for f in found] == [("trainer", Need.NOTHING)]


@pytest.mark.parametrize("code", NVLINK5)
def test_d4_an_event_of_nvlink_5_has_no_text_so_the_log_and_the_advice_decide(code):
    """NVML's event of an injected error is the same as that of a real one."""
    known = Known(catalogue=CATALOGUE, branch=580)
    told = judge_xid(Xid(code=code), known, at=5.0, source=Source.EVENTS, gpu=GPU)
    (fault,) = told.signals
    assert isinstance(fault, Fault)
    assert (fault.need, told.ask_again) == (Need.PROBE, GPU)
    assert withheld(f"{XID}{code}, text that nobody has seen") is (code == 150)
    advised = Known(catalogue=CATALOGUE, branch=580, actions={GPU: 1})
    said = judge_xid(Xid(code=code), advised, at=5.0, source=Source.EVENTS, gpu=GPU).signals
    assert Need.RESET in {s.need for s in said if isinstance(s, Fault)}
