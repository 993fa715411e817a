"""The simulated hardware of a node, from outside: what is on it, and what goes wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.simnvml import driverroot, kmsg
from hack.simnvml.gpu import Instance
from hack.simnvml.kit import Machine


def folder(node: str) -> Path:
    return Path(os.environ["TESSERA_KIND_GPUS"], node, "run")


@contextmanager
def machine(node: str) -> Iterator[Machine]:
    opened = Machine.open(folder(node))
    try:
        yield opened
    finally:
        opened.close()


def instances(node: str) -> list[Instance]:
    """What is on the simulated hardware now."""
    with machine(node) as opened:
        return [each for found in opened.snapshot().values() for each in found]


def uuids(node: str) -> dict[int, str]:
    with machine(node) as opened:
        return {gpu.slot: gpu.uuid for gpu in opened.gpus}


def slot_of(node: str, uuid: str) -> int:
    return next(slot for slot, each in uuids(node).items() if each == uuid)


def xid(node: str, uuid: str, code: int, *, instance: int | None = None, text: str = "") -> None:
    """As the driver writes it into the kernel's log."""
    with machine(node) as opened:
        where = kmsg.address(opened, slot_of(node, uuid))
    part = "" if instance is None else f" GPU-I:{instance:02}"
    with kmsg.opened(folder(node)) as log:
        log.write(f"NVRM: Xid (PCI:{where}{part}): {code}, {text or 'e2e'}")


def recovery(node: str, uuid: str, action: int) -> None:
    """What the GPU asks for: 0 nothing, 1 a reset, 2 a reboot."""
    with machine(node) as opened:
        opened.gpus[slot_of(node, uuid)].recovery(action)


def reset(node: str, uuid: str) -> None:
    """As an administrator does it, with no process on the GPU."""
    with machine(node) as opened:
        opened.gpus[slot_of(node, uuid)].reset()


def boot(node: str) -> None:
    """What a boot changes for the driver: resets, another boot id, new files. The node goes on."""
    with machine(node) as opened:
        opened.reboot()
        driverroot.render(opened, folder(node).parent / "root", nodes=True)
