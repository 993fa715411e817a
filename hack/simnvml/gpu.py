"""One GPU of a simulated machine, and what can happen to it."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Final

from hack.simnvml import library as lib
from hack.simnvml.assemble import FieldValue
from hack.simnvml.library import NOBODY

XID: Final = 0x8
RECOVERY_ACTION: Final = 0x8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A GPU instance with one of its compute instances, or with none (`ci` is None)."""

    gpu: int
    gi: int
    profile: str
    profile_id: int
    start: int
    size: int
    gi_busy: bool
    ci: int | None
    ci_profile: int | None
    ci_start: int | None
    ci_size: int | None
    ci_busy: bool
    mig_index: int | None
    uuid: str | None

    @classmethod
    def of(cls, row: lib.InstanceStruct) -> Instance:
        bare = row.ci == NOBODY
        return cls(
            gpu=row.gpu,
            gi=row.gi,
            profile=row.profile.decode().removeprefix("MIG "),
            profile_id=row.profile_id,
            start=row.start,
            size=row.size,
            gi_busy=bool(row.gi_busy),
            ci=None if bare else row.ci,
            ci_profile=None if bare else row.ci_profile,
            ci_start=None if bare else row.ci_start,
            ci_size=None if bare else row.ci_size,
            ci_busy=bool(row.ci_busy),
            mig_index=None if bare else row.mig_index,
            uuid=None if bare else row.uuid.decode(),
        )


class Gpu:
    """A handle: it holds no state, so several may stand for the same slot."""

    def __init__(self, library: c.CDLL, machine: int, slot: int) -> None:
        self._lib = library
        self._machine = machine
        self.slot = slot

    @property
    def uuid(self) -> str:
        return str(self.get("uuid"))

    @property
    def minor(self) -> int:
        return self.number("minor")

    @property
    def pci(self) -> str:
        """The address as the kernel writes it."""
        domain, bus, device = (self.number(name) for name in ("domain", "bus", "device"))
        return f"{domain:04x}:{bus:02x}:{device:02x}.0"

    # -- plain fields

    def get(self, field: str) -> int | str:
        """One plain field; the first element of an array."""
        return peek(self._lib, self._machine, self.slot, field)

    def number(self, field: str) -> int:
        """One plain field that is a number."""
        return int(self.get(field))

    def set(self, **fields: FieldValue) -> None:
        """Sets plain fields at once visible to all; None makes NVML answer NOT_SUPPORTED."""
        poke_all(self._lib, self._machine, self.slot, fields)

    def field_value(self, identifier: int, value: int, *, ret: int = 0) -> None:
        """What nvmlDeviceGetFieldValues gives for an NVML_FI_* id."""
        at = self._lib.sim_field_value(self._machine, self.slot, identifier, value, ret)
        if at < 0:
            raise RuntimeError(f"GPU {self.slot} has no room for another field value")

    # -- conditions

    def event(
        self, kind: int, data: int = 0, *, gi: int | None = None, ci: int | None = None
    ) -> None:
        """Publishes an event to every event set that registered for its kind."""
        self._lib.sim_event(self._machine, self.slot, kind, data, _instance(gi), _instance(ci))

    def xid(self, code: int, gi: int | None = None, ci: int | None = None) -> None:
        """Raises a critical Xid, of the whole GPU unless an instance is named."""
        self.event(XID, code, gi=gi, ci=ci)

    def recovery(self, action: int) -> None:
        """The GPU's own advice: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset."""
        self.set(recovery_action=action)
        self.event(RECOVERY_ACTION, action)

    def lose(self, *, off_bus: bool = False) -> None:
        """Every call on it answers GPU_IS_LOST; off the bus, it leaves the PCI tree as well."""
        self.set(lost=1, off_bus=int(off_bus))

    def reset(self) -> None:
        """Instances and processes go, the pending MIG mode takes effect, the GPU is well again."""
        self._lib.sim_reset(self._machine, self.slot)

    def unplug(self) -> None:
        """The count shrinks and later indexes shift; minors and slots do not."""
        self.set(present=0)

    def plug(self) -> None:
        self.set(present=1)

    def busy(self, on: bool = True, *, gi: int | None = None, ci: int | None = None) -> None:
        """Somebody uses the GPU, the instance or the compute instance: it cannot be destroyed."""
        where = (self.slot, _instance(gi), _instance(ci))
        if self._lib.sim_busy(self._machine, *where, int(on)):
            raise ValueError(f"GPU {self.slot} has no instance {gi} with compute instance {ci}")

    def process(
        self, pid: int, memory: int, *, gi: int | None = None, ci: int | None = None
    ) -> None:
        """A process that computes here and so keeps its instance busy; memory 0 ends it."""
        where = (_instance(gi), _instance(ci))
        if self._lib.sim_process(self._machine, self.slot, pid, memory, *where):
            raise RuntimeError(f"GPU {self.slot} does not know process {pid}, or has too many")

    def instances(self) -> list[Instance]:
        """What is cut out of this GPU now."""
        rows = (lib.InstanceStruct * 2048)()
        count = self._lib.sim_instances(self._machine, rows, len(rows))
        return [Instance.of(row) for row in rows[:count] if row.gpu == self.slot]


def _instance(identifier: int | None) -> int:
    return NOBODY if identifier is None else identifier


def _shape(library: c.CDLL, gpu: int, field: str) -> tuple[int, int]:
    kind, size = c.c_uint32(), c.c_uint32()
    if library.sim_field_info(gpu, field.encode(), c.byref(kind), c.byref(size)):
        raise AttributeError(f"a {'machine' if gpu < 0 else 'GPU'} has no field {field!r}")
    return kind.value, size.value


def field_names(library: c.CDLL, gpu: int) -> list[str]:
    """The plain fields of a GPU, or with -1 of the machine."""
    names: list[str] = []
    while (name := library.sim_field_name(gpu, len(names))) is not None:
        names.append(name.decode())
    return names


def peek(library: c.CDLL, machine: int, gpu: int, field: str) -> int | str:
    """A plain field: text, or a number (the first of an array)."""
    kind, size = _shape(library, gpu, field)
    buffer = c.create_string_buffer(size)
    library.sim_peek(machine, gpu, field.encode(), buffer, size)
    if kind == lib.TEXT:
        return buffer.value.decode()
    if kind == lib.BYTES:
        return buffer.raw.hex()
    return int.from_bytes(buffer.raw[: 4 if kind == lib.U32 else 8], "little")


def poke_all(library: c.CDLL, machine: int, gpu: int, fields: dict[str, FieldValue]) -> None:
    """Sets plain fields, each on its own; None hides one."""
    for field, value in fields.items():
        kind, size = _shape(library, gpu, field)
        if value is None:
            if gpu < 0:
                raise ValueError(f"the machine's {field} cannot be hidden")
            library.sim_hide(machine, gpu, field.encode(), 1)
            continue
        data = _encode(kind, value)
        if len(data) > size:
            raise ValueError(f"{field} takes {size} bytes, not {len(data)}: {value!r}")
        library.sim_poke(machine, gpu, field.encode(), 0, data, len(data))
        if gpu >= 0:
            library.sim_hide(machine, gpu, field.encode(), 0)


def _encode(kind: int, value: int | str | bytes | list[int]) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return value.encode() + b"\0"
        case int():
            return _encode(kind, [value])
        case list():
            width = 4 if kind == lib.U32 else 8
            mask = (1 << 8 * width) - 1  # -1 is "none" in some fields
            return b"".join((number & mask).to_bytes(width, "little") for number in value)
