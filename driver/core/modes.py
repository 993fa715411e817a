"""How each GPU is used: as a whole, cut on demand, as an administrator cut it, or not at all.

Why it exists: whether a GPU can be partitioned without a reset is the hardware's to say, whether it
should be is the administrator's, and every later step wants one word a GPU. Must not know boards by
name, nor profiles: `boards.py` says what a mode publishes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from driver.core.errors import ConfigError
from driver.core.ids import GpuUuid
from driver.core.snapshot import GpuFacts, MigState, PciAddress


class Mode(StrEnum):
    """`DYNAMIC`: the full GPU and its partitions, made when a claim needs them. `STATIC`: the
    partitions that are there. `FULL`: the full GPU alone. `EXCLUDED`: nothing.
    """

    DYNAMIC = "dynamic"
    STATIC = "static"
    FULL = "full"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`mode` for the GPUs that all given criteria fit. `product`: words of the product's name."""

    mode: Mode
    uuid: GpuUuid | None = None
    pci: PciAddress | None = None
    product: str | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        if not self._given():
            raise ValueError("a rule needs uuid, pci, product or index; without one it fits all")

    def __str__(self) -> str:
        return f"{{{', '.join(f'{k}: {v}' for k, v in self._given().items())}}} -> {self.mode}"

    def fits(self, gpu: GpuFacts) -> bool:
        return (
            self.uuid in {None, gpu.uuid}
            and self.pci in {None, gpu.pci}
            and self.index in {None, gpu.index}
            and (self.product is None or has_words(gpu.product, self.product))
        )

    @property
    def names_one_gpu(self) -> bool:
        """Rather than a kind of GPU, of which a node may well have none."""
        return self.uuid is not None or self.pci is not None or self.index is not None

    def _given(self) -> dict[str, object]:
        criteria = {
            "uuid": self.uuid,
            "pci": self.pci,
            "product": self.product,
            "index": self.index,
        }
        return {name: value for name, value in criteria.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """`withheld_reason` is empty where the GPU can be given out."""

    mode: Mode
    withheld_reason: str = ""


def assign(gpus: Sequence[GpuFacts], rules: Sequence[Rule]) -> Mapping[GpuUuid, Assigned]:
    """The mode of every GPU. ConfigError where two rules claim one, or where the hardware cannot.

    While MIG mode is about to change at a reset, the mode stays what it was, so that devices in use
    stay as they are, and a rule may already fit what comes.
    """
    found: dict[GpuUuid, Assigned] = {}
    for gpu in gpus:
        rule = _rule_for(gpu, rules)
        if rule is not None:
            _check(gpu, rule)
        mode = by_hardware(gpu.mig) if rule is None else rule.mode
        found[gpu.uuid] = Assigned(mode=mode, withheld_reason=_withheld(gpu.mig, mode))
    return found


def unmatched(gpus: Sequence[GpuFacts], rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules for one certain GPU that is not here (yet): worth a line in the log, never an error."""
    return tuple(r for r in rules if r.names_one_gpu and not any(r.fits(g) for g in gpus))


def by_hardware(mig: MigState) -> Mode:
    """What can be done without a reset. A board that was not read is no board without profiles."""
    if mig.capable and mig.switchable and (mig.geometry is not None or mig.unread):
        return Mode.DYNAMIC
    if mig.enabled and not mig.switchable:
        return Mode.STATIC
    return Mode.FULL


def has_words(text: str, words: str) -> bool:
    """Whether `words` stand in `text`, one after the other and whole, in any case.

    Whole, because names of boards contain each other: an A10 is no A100, an L4 no L40S.
    """
    looked_in, looked_for = _words(text), _words(words)
    return f" {' '.join(looked_for)} " in f" {' '.join(looked_in)} "


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _rule_for(gpu: GpuFacts, rules: Sequence[Rule]) -> Rule | None:
    fitting = [rule for rule in rules if rule.fits(gpu)]
    if len(fitting) > 1:
        raise ConfigError(
            f"gpus: {_spell(gpu)} is claimed by {len(fitting)} rules,"
            f" {' and '.join(map(str, fitting))}; let only one of them fit"
        )
    return fitting[0] if fitting else None


def _check(gpu: GpuFacts, rule: Rule) -> None:
    """Impossible is what is so both now and after the next reset."""
    mig = gpu.mig
    problems = [_impossible(mig, on, rule.mode) for on in (mig.enabled, mig.pending)]
    if all(problems):
        raise ConfigError(f"gpus: {rule} is not possible for {_spell(gpu)}: {problems[0]}")


def _impossible(mig: MigState, on: bool, mode: Mode) -> str:
    """Why `mode` cannot be had with MIG mode `on`; empty where it can."""
    match mode:
        case Mode.DYNAMIC | Mode.STATIC if not mig.capable:
            return "it has no MIG; use mode full"
        case Mode.DYNAMIC if mig.geometry is None and not mig.unread:
            return "NVML names no MIG profile for it; use mode full"
        case Mode.DYNAMIC if not mig.switchable and not on:
            return (
                "MIG mode is off and changes only at a reset; switch it on (`nvidia-smi -mig 1`)"
                " and reset the GPU, or use mode full"
            )
        case Mode.FULL if not mig.switchable and on:
            return (
                "MIG mode is on and changes only at a reset; switch it off (`nvidia-smi -mig 0`)"
                " and reset the GPU, or use mode static"
            )
        case _:
            return ""


def _withheld(mig: MigState, mode: Mode) -> str:
    if mode is Mode.EXCLUDED:
        return ""
    if mig.enabled != mig.pending:
        now, then = ("on", "off") if mig.enabled else ("off", "on")
        return f"MIG mode is {now} and will be {then} after a reset; reset the GPU, or set it back"
    if mig.enabled and mig.geometry is None:
        return (
            "MIG mode is on, but it cannot be told what runs there:"
            f" {mig.unread or 'NVML names no MIG profile'}. NVML is asked again at each rescan; if"
            " nothing runs there, MIG mode can be switched off (`nvidia-smi -mig 0`)"
        )
    if mode is Mode.STATIC and not mig.enabled:
        return "MIG mode is off, so there are no partitions; switch it on (`nvidia-smi -mig 1`)"
    return ""


def _spell(gpu: GpuFacts) -> str:
    return f"{gpu.uuid} ({gpu.product} at {gpu.pci})"
