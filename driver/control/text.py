"""The answer to `tessera status` as text for people.

Of devices only those are named that are not as their GPU is: a node may have hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

Document = dict[str, Any]

_GPU_HEADS: Final = ("GPU", "index", "minor", "PCI", "product", "serial", "mode", "state", "since")
_GPU_KEYS: Final = ("uuid", "index", "minor", "pci", "product", "serial", "mode", "state", "since")
_CLAIM_HEADS: Final = ("claim", "device", "UUID", "phase")
_DEVICE_HEADS: Final = ("device", "state", "since", "because of")


def status(found: Document) -> str:
    parts = (
        "".join(f"{line}\n" for line in _head(found)),
        _table(_GPU_HEADS, ([_cell(gpu[key]) for key in _GPU_KEYS] for gpu in found["gpus"])),
        "".join(f"{line}\n" for line in _why(found)),
        _table(_DEVICE_HEADS, _other_devices(found)),
        _table(_CLAIM_HEADS, _claims(found["claims"])),
    )
    return "\n".join(part for part in parts if part)


def _head(found: Document) -> Iterator[str]:
    yield f"node {found['node']}, driver {found['driver']} {found['version']}"
    yield f"boot {found['bootId']}, NVIDIA driver {found['nvidiaDriver'] or 'not read'}"
    if not found["leads"]:
        yield (
            "another plugin pod of this node leads: what follows is what was stored when this one"
            " started"
        )
    if found["problem"]:
        yield f"the hardware cannot be read now: {found['problem']}"
    if (window := found["release"]) is not None:
        held = ", but a call has not returned: NVML is still held" if window["held"] else ""
        yield f"release window: another {window['secondsLeft']:.0f} s{held}"
    if found["unsavedEvidence"]:
        yield f"evidence is not stored, a restart would forget it: {found['unsavedEvidence']}"
    if (log := found["kernelLog"]) is None:
        yield "kernel log: not read"
    else:
        yield "kernel log: " + ", ".join(f"{count} {name}" for name, count in log.items())


def _why(found: Document) -> Iterator[str]:
    for where, reasons in (
        ("node", found["reasons"]),
        *((gpu["uuid"], gpu["reasons"]) for gpu in found["gpus"]),
    ):
        for each in reasons:
            detail = f" ({each['detail']})" if each["detail"] else ""
            yield (
                f"{where}: {each['name']}{detail}, by {each['source']}, {each['state']},"
                f" {each['count']} times, since {each['since']}"
            )
            yield f"  clears by: {each['clearsBy']}; to act: {each['toAct']}"
    for gpu in found["gpus"]:
        for note in gpu["notes"]:
            yield f"{gpu['uuid']}: {note}"


def _other_devices(found: Document) -> Iterator[Sequence[str]]:
    states = {gpu["uuid"]: gpu["state"] for gpu in found["gpus"]}
    for each in found["devices"]:
        state = each["state"]
        if state != "ready" and state != states.get(each["gpu"]):
            yield each["name"], state, _cell(each["since"]), ", ".join(each["reasons"])


def _claims(claims: Iterable[Document]) -> Iterator[Sequence[str]]:
    for claim in claims:
        for each in claim["devices"]:
            name = f"{claim['namespace']}/{claim['name']}"
            yield name, each["name"], each["uuid"], claim["phase"]


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Nothing where there are no rows."""
    lines = [heads, *rows]
    if len(lines) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)
