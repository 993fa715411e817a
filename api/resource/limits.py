"""What the API server, or the scheduler behind it, would refuse in a pool. Checked before writing.

Why it exists: the server sees one slice at a time, but several rules concern the whole pool, and a
broken rule makes the scheduler skip the node in silence. One wrong value costs a whole slice (422),
so everything is known here first, with the name of the device and the rule.

Source: validation of resource.k8s.io of Kubernetes 1.35 to 1.37, restated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from api.resource.types import Attribute, Device, Number, Pool, Slice, Text, Version

MAX_DEVICES: Final = 128
MAX_DEVICES_WITH_COUNTERS_OR_TAINTS: Final = 64
"""We always split at this: the first taint on a slice of 65 devices would be refused."""
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS_PER_SET: Final = 32
MAX_COUNTER_SETS_PER_DEVICE: Final = 2
MAX_TAINTS: Final = 16
MAX_ATTRIBUTES_AND_CAPACITIES: Final = 32
MAX_TEXT_BYTES: Final = 64
MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_IDENTIFIER: Final = 32

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def is_label(text: str) -> bool:
    """A DNS label: device, request, counter set and counter names."""
    return len(text) <= MAX_LABEL and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """A DNS subdomain: driver names (at most 63 characters), object names (253)."""
    return len(text) <= MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def is_semver(text: str) -> bool:
    return len(text) <= MAX_TEXT_BYTES and _SEMVER.fullmatch(text) is not None


def problems(pool: Pool) -> Iterator[str]:
    """Every rule that `pool` breaks, one line each; nothing where it may be written."""
    if not (len(pool.driver) <= MAX_LABEL and is_subdomain(pool.driver)):
        yield f"driver name {pool.driver!r} is not a DNS subdomain of at most 63 characters"
    if len(pool.name) > MAX_SUBDOMAIN or not all(map(is_subdomain, pool.name.split("/"))):
        yield f"pool name {pool.name!r} is not made of DNS subdomains joined by '/'"
    if not pool.slices:
        yield f"pool {pool.name!r} has no slice; an empty pool has one without devices"
    yield from _doubles("slice name", (s.name for s in pool.slices))
    yield from _doubles("device name", (d.name for s in pool.slices for d in s.devices))
    yield from _doubles("counter set name", (c.name for s in pool.slices for c in s.counter_sets))
    sets = {c.name: dict(c.counters) for s in pool.slices for c in s.counter_sets}
    for each in pool.slices:
        yield from _slice_problems(each)
        for device in each.devices:
            yield from _device_problems(device)
            yield from _counter_problems(device, sets)


def taint_problems(pool: Pool) -> Iterator[str]:
    """What taints alone can break: all there is to check where the pool is fine without them."""
    for each in pool.slices:
        tainted = [d for d in each.devices if d.taints]
        if tainted:
            yield from _size_problems(each)
        for device in tainted:
            yield from _taint_problems(device)


def _doubles(what: str, names: Iterable[str]) -> Iterator[str]:
    yield from (f"{what} {n!r} occurs {k} times" for n, k in Counter(names).items() if k > 1)


def _slice_problems(each: Slice) -> Iterator[str]:
    if not is_subdomain(each.name):
        yield f"slice name {each.name!r} is not a DNS subdomain"
    if each.devices and each.counter_sets:
        yield f"slice {each.name} holds devices and counter sets; they need slices of their own"
    yield from _size_problems(each)
    if len(each.counter_sets) > MAX_COUNTER_SETS:
        yield f"slice {each.name} holds {len(each.counter_sets)} counter sets, more than 8"
    for counters in each.counter_sets:
        if not is_label(counters.name):
            yield f"counter set name {counters.name!r} is not a DNS label"
        if not 0 < len(counters.counters) <= MAX_COUNTERS_PER_SET:
            yield f"counter set {counters.name} has {len(counters.counters)} counters, not 1 to 32"
        for name, _ in counters.counters:
            if not is_label(name):
                yield f"counter {name!r} of counter set {counters.name} is not a DNS label"


def _size_problems(each: Slice) -> Iterator[str]:
    most = MAX_DEVICES
    if any(d.consumes or d.taints for d in each.devices):
        most = MAX_DEVICES_WITH_COUNTERS_OR_TAINTS
    if len(each.devices) > most:
        yield f"slice {each.name} holds {len(each.devices)} devices; at most {most} are allowed"


def _device_problems(device: Device) -> Iterator[str]:
    where = f"device {device.name}"
    if not is_label(device.name):
        yield f"device name {device.name!r} is not a DNS label"
    if len(device.attributes) + len(device.capacity) > MAX_ATTRIBUTES_AND_CAPACITIES:
        yield f"{where} has more than {MAX_ATTRIBUTES_AND_CAPACITIES} attributes and capacities"
    for name in [n for n, _ in device.attributes] + [n for n, _ in device.capacity]:
        if not _is_qualified(name):
            yield f"{where}: {name!r} is not an identifier, or a domain and an identifier"
    for name, attribute in device.attributes:
        if problem := _attribute_problem(attribute):
            yield f"{where}: attribute {name} {problem}"
    yield from _taint_problems(device)


def _taint_problems(device: Device) -> Iterator[str]:
    where = f"device {device.name}"
    if len(device.taints) > MAX_TAINTS:
        yield f"{where} has {len(device.taints)} taints; at most {MAX_TAINTS} are allowed"
    for taint in device.taints:
        if len(taint.value) > MAX_LABEL or not _LABEL_VALUE.fullmatch(taint.value):
            yield f"{where}: taint value {taint.value!r} is not a label value"
        if not _is_label_key(taint.key):
            yield f"{where}: taint key {taint.key!r} is not a label key"


def _attribute_problem(attribute: Attribute) -> str:
    match attribute:
        case Text(value) if len(value.encode()) > MAX_TEXT_BYTES:
            return f"is longer than {MAX_TEXT_BYTES} bytes"
        case Version(value) if not is_semver(value):
            return f"is {value!r}, not a semantic version"
        case Number(value) if not -(2**63) <= value < 2**63:
            return f"is {value}, beyond 64 bits"
        case _:
            return ""


def _counter_problems(device: Device, sets: dict[str, dict[str, int]]) -> Iterator[str]:
    if len(device.consumes) > MAX_COUNTER_SETS_PER_DEVICE:
        yield f"device {device.name} consumes from {len(device.consumes)} counter sets, more than 2"
    sets_named = (c.counter_set for c in device.consumes)
    yield from _doubles(f"device {device.name}: consumed counter set", sets_named)
    for consumed in device.consumes:
        if not consumed.counters:
            yield f"device {device.name} consumes no counter of {consumed.counter_set}"
        have = sets.get(consumed.counter_set)
        if have is None:
            yield f"device {device.name} consumes from {consumed.counter_set!r}, which no slice has"
            continue
        for name, amount in consumed.counters:
            if amount > have.get(name, -1):
                yield (
                    f"device {device.name} consumes {amount} of {name!r}; "
                    f"counter set {consumed.counter_set} has {have.get(name, 'no such counter')}"
                )


def _is_qualified(name: str) -> bool:
    domain, slash, identifier = name.rpartition("/")
    named = len(identifier) <= MAX_IDENTIFIER and _IDENTIFIER.fullmatch(identifier) is not None
    return named and (not slash or (len(domain) <= MAX_LABEL and is_subdomain(domain)))


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    named = 0 < len(name) <= MAX_LABEL and _LABEL_VALUE.fullmatch(name) is not None
    return named and (not slash or is_subdomain(prefix))
