"""Which mode a GPU gets: what its hardware can do without a reset, unless a rule says otherwise."""

from dataclasses import replace

import pytest

from driver.core.errors import ConfigError
from driver.core.modes import Assigned, Mode, Rule, assign, has_words, unmatched
from driver.core.snapshot import GpuFacts, MigState, PciAddress
from tests.data.mig_boards import A100_40, H100
from tests.unit.core.given import gpu, uuid

HOPPER = MigState(capable=True, switchable=True, geometry=H100)
HOPPER_ON = MigState(capable=True, enabled=True, pending=True, switchable=True, geometry=H100)
AMPERE = MigState(capable=True, geometry=A100_40)
AMPERE_ON = MigState(capable=True, enabled=True, pending=True, geometry=A100_40)
TURNING_ON = MigState(capable=True, pending=True, geometry=A100_40)
TURNING_OFF = MigState(capable=True, enabled=True, geometry=A100_40)
NAMELESS = MigState(capable=True, switchable=True)
UNREAD = MigState(capable=True, switchable=True, unread="nvmlX on GPU 1: Unknown Error")
WITHOUT = MigState(capable=False)


def mode_of(one: GpuFacts, *rules: Rule) -> Assigned:
    return assign([one], rules)[one.uuid]


@pytest.mark.parametrize(
    ("mig", "mode"),
    [
        (HOPPER, Mode.DYNAMIC),
        (HOPPER_ON, Mode.DYNAMIC),
        (AMPERE, Mode.FULL),
        (AMPERE_ON, Mode.STATIC),
        (NAMELESS, Mode.FULL),
        (UNREAD, Mode.DYNAMIC),
        (WITHOUT, Mode.FULL),
    ],
)
def test_without_a_rule_a_gpu_does_what_it_can_without_a_reset(mig, mode):
    assert mode_of(gpu(1, mig=mig)) == Assigned(mode=mode)


@pytest.mark.parametrize(
    ("mode", "possible"),
    [
        (Mode.DYNAMIC, [HOPPER, HOPPER_ON, AMPERE_ON, TURNING_ON, TURNING_OFF]),
        (Mode.STATIC, [HOPPER, HOPPER_ON, AMPERE, AMPERE_ON, TURNING_ON, TURNING_OFF, NAMELESS]),
        (Mode.FULL, [HOPPER, HOPPER_ON, AMPERE, TURNING_ON, TURNING_OFF, NAMELESS, WITHOUT]),
        (
            Mode.EXCLUDED,
            [HOPPER, HOPPER_ON, AMPERE, AMPERE_ON, TURNING_ON, TURNING_OFF, NAMELESS, WITHOUT],
        ),
    ],
)
def test_a_rule_may_ask_for_what_the_hardware_can_do_now_or_after_the_next_reset(mode, possible):
    rule = Rule(mode=mode, uuid=uuid(1))
    for mig in (HOPPER, HOPPER_ON, AMPERE, AMPERE_ON, TURNING_ON, TURNING_OFF, NAMELESS, WITHOUT):
        if mig in possible:
            assert mode_of(gpu(1, mig=mig), rule).mode is mode
        else:
            with pytest.raises(ConfigError, match=f"-> {mode} is not possible for GPU-00000001"):
                mode_of(gpu(1, mig=mig), rule)


@pytest.mark.parametrize(
    ("mig", "mode", "why"),
    [
        (WITHOUT, Mode.DYNAMIC, "it has no MIG; use mode full"),
        (WITHOUT, Mode.STATIC, "it has no MIG; use mode full"),
        (NAMELESS, Mode.DYNAMIC, "NVML names no MIG profile for it; use mode full"),
        (AMPERE, Mode.DYNAMIC, r"MIG mode is off .* switch it on \(`nvidia-smi -mig 1`\)"),
        (AMPERE_ON, Mode.FULL, r"MIG mode is on .* switch it off \(`nvidia-smi -mig 0`\)"),
    ],
)
def test_an_impossible_mode_names_the_gpu_the_rule_and_the_way_out(mig, mode, why):
    rule = Rule(mode=mode, product="H100")
    with pytest.raises(ConfigError, match=why) as caught:
        mode_of(gpu(1, mig=mig), rule)
    assert f"gpus: {{product: H100}} -> {mode} is not possible for {uuid(1)}" in str(caught.value)
    assert "NVIDIA H100 80GB HBM3 at 0000:01:00.0" in str(caught.value)


@pytest.mark.parametrize(
    ("mig", "mode", "reason"),
    [
        (TURNING_ON, Mode.FULL, "MIG mode is off and will be on after a reset"),
        (TURNING_OFF, Mode.STATIC, "MIG mode is on and will be off after a reset"),
    ],
)
def test_a_gpu_whose_mig_mode_is_about_to_change_keeps_its_mode_and_is_withheld(mig, mode, reason):
    found = mode_of(gpu(1, mig=mig))
    assert found.mode is mode
    assert found.withheld_reason.startswith(reason)


def test_a_static_gpu_without_mig_mode_says_what_it_waits_for():
    found = mode_of(gpu(1, mig=HOPPER), Rule(mode=Mode.STATIC, index=1))
    assert found.withheld_reason.startswith("MIG mode is off, so there are no partitions")
    assert not mode_of(gpu(1, mig=TURNING_ON), Rule(mode=Mode.EXCLUDED, index=1)).withheld_reason


@pytest.mark.parametrize(
    ("switchable", "unread", "mode", "why"),
    [
        (True, "", Mode.FULL, "NVML names no MIG profile"),
        (False, "", Mode.STATIC, "NVML names no MIG profile"),
        (True, "Unknown Error", Mode.DYNAMIC, "Unknown Error"),
        (False, "Unknown Error", Mode.STATIC, "Unknown Error"),
    ],
)
def test_a_gpu_in_mig_mode_of_which_nothing_can_be_told_is_withheld(switchable, unread, mode, why):
    mig = MigState(capable=True, enabled=True, pending=True, switchable=switchable, unread=unread)
    found = mode_of(gpu(1, mig=mig))
    assert found.mode is mode
    assert f"it cannot be told what runs there: {why}. NVML is asked" in found.withheld_reason


def test_a_rule_is_no_mistake_because_a_gpu_could_not_be_read():
    on = replace(UNREAD, enabled=True, pending=True)
    for mode in (Mode.DYNAMIC, Mode.STATIC, Mode.FULL):
        rule = Rule(mode=mode, product="H100")
        assert {mode_of(gpu(1, mig=mig), rule).mode for mig in (UNREAD, on)} == {mode}


def test_two_rules_for_one_gpu_are_refused_with_both_of_them():
    rules = [Rule(mode=Mode.FULL, product="H100"), Rule(mode=Mode.STATIC, index=1)]
    assert assign([gpu(2, mig=HOPPER)], rules)[uuid(2)].mode is Mode.FULL
    with pytest.raises(ConfigError, match="GPU-00000001") as caught:
        assign([gpu(2, mig=HOPPER), gpu(1, mig=HOPPER)], rules)
    assert "{product: H100} -> full and {index: 1} -> static; let only one" in str(caught.value)


def test_every_criterion_of_a_rule_must_fit():
    rule = Rule(
        mode=Mode.FULL,
        uuid=uuid(3),
        pci=PciAddress(domain=0, bus=3, device=0),
        product="h100",
        index=3,
    )
    assert rule.fits(gpu(3))
    changes = {"uuid": uuid(4), "pci": gpu(4).pci, "product": "NVIDIA L4", "index": 4}
    assert not any(rule.fits(gpu(3, **{key: other})) for key, other in changes.items())


def test_a_rule_for_one_gpu_that_is_not_here_is_told_and_one_for_a_kind_of_gpu_is_not():
    gone = Rule(mode=Mode.FULL, uuid=uuid(9))
    rules = [gone, Rule(mode=Mode.FULL, product="L40S"), Rule(mode=Mode.FULL, index=1)]
    assert unmatched([gpu(1)], rules) == (gone,)


def test_a_rule_without_a_criterion_cannot_be_made():
    with pytest.raises(ValueError, match="without one it fits all"):
        Rule(mode=Mode.EXCLUDED)


@pytest.mark.parametrize(
    ("product", "words", "fits"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100", True),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4", True),
        ("NVIDIA A100-SXM4-40GB", "A10", False),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB", False),
        ("NVIDIA L40S", "L40", False),
        ("NVIDIA GH200 480GB", "H200", False),
        ("NVIDIA H100 80GB HBM3", "nvidia h100 80gb hbm3", True),
    ],
)
def test_a_product_is_told_by_whole_words_in_their_sequence(product, words, fits):
    assert has_words(product, words) is fits
