"""Each rule is broken once, in a pool that is fine otherwise, and gives its one message."""

from dataclasses import replace
from typing import Any

import pytest

from api.resource.limits import is_label, is_semver, is_subdomain, problems
from api.resource.types import (
    Consumption,
    CounterSet,
    Device,
    Number,
    Pool,
    Slice,
    Taint,
    TaintEffect,
    Text,
    Version,
)

SET = CounterSet(name="set-0", counters=(("memory-slice-0", 4),))
DEVICE = Device(
    name="d0",
    attributes=(("type", Text("gpu")), ("resource.kubernetes.io/numaNode", Number(0))),
    capacity=(("memory", 1),),
)


def pool(*slices: Slice, **changes: Any) -> Pool:
    base = Pool(driver="gpu.tessera.dev", node="n", name="n/tessera", slices=slices)
    return replace(base, **changes)


def sets(*counter_sets: CounterSet) -> Pool:
    return pool(Slice(name="s0", counter_sets=counter_sets))


def devices(*all_devices: Device) -> Pool:
    """A pool of one set of counters and one slice of `all_devices`."""
    return pool(
        Slice(
            name="s0", counter_sets=(SET, replace(SET, name="set-1"), replace(SET, name="set-2"))
        ),
        Slice(name="s1", devices=all_devices),
    )


def device(**changes: Any) -> Pool:
    return devices(replace(DEVICE, **changes))


def taints(number: int, key: str = "k", value: str = "v") -> tuple[Taint, ...]:
    return number * (Taint(key=key, value=value, effect=TaintEffect.NO_SCHEDULE),)


def uses(*from_sets: str, amount: int = 1, counter: str = "memory-slice-0") -> Any:
    return tuple(Consumption(counter_set=s, counters=((counter, amount),)) for s in from_sets)


def row(count: int, **changes: Any) -> Pool:
    last = replace(DEVICE, name="last", **changes)
    return devices(*(replace(DEVICE, name=f"d{i}") for i in range(count - 1)), last)


@pytest.mark.parametrize(
    "fine",
    [
        pool(Slice(name="s0")),
        row(128),
        row(64, taints=taints(1)),
        row(64, consumes=uses("set-0", "set-1", amount=4)),
        device(taints=taints(16, key="example.com/key")),
        device(attributes=tuple((f"a{i}", Number(-(2**63))) for i in range(31))),
        device(attributes=(("a" * 32, Text("é" * 32)), ("v", Version("1.0.0-rc.1+build.5")))),
        sets(*(replace(SET, name=f"set-{i}") for i in range(8))),
        sets(replace(SET, counters=tuple((f"c-{i}", i) for i in range(32)))),
        pool(Slice(name="s0"), driver="d" * 63, name="n" * 253),
    ],
)
def test_a_pool_at_the_limit_is_fine(fine):
    assert list(problems(fine)) == []


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (pool(Slice(name="s"), driver="GPU"), "driver name 'GPU' is not a DNS subdomain"),
        (pool(Slice(name="s"), driver="d" * 64), "is not a DNS subdomain of at most 63 characters"),
        (pool(Slice(name="s"), name="n//t"), "pool name 'n//t' is not made of DNS subdomains"),
        (pool(Slice(name="s"), name="n" * 254), "is not made of DNS subdomains joined by '/'"),
        (pool(), "pool 'n/tessera' has no slice"),
        (pool(Slice(name="s"), Slice(name="s")), "slice name 's' occurs 2 times"),
        (pool(Slice(name="S_0")), "slice name 'S_0' is not a DNS subdomain"),
        (
            pool(Slice(name="s", devices=(DEVICE,), counter_sets=(SET,))),
            "slice s holds devices and counter sets; they need slices of their own",
        ),
        (devices(DEVICE, DEVICE), "device name 'd0' occurs 2 times"),
        (sets(SET, SET), "counter set name 'set-0' occurs 2 times"),
        (row(129), "slice s1 holds 129 devices; at most 128 are allowed"),
        (row(65, taints=taints(1)), "slice s1 holds 65 devices; at most 64 are allowed"),
        (row(65, consumes=uses("set-0")), "slice s1 holds 65 devices; at most 64 are allowed"),
        (
            sets(*(replace(SET, name=f"set-{i}") for i in range(9))),
            "slice s0 holds 9 counter sets, more than 8",
        ),
        (sets(replace(SET, name="set.0")), "counter set name 'set.0' is not a DNS label"),
        (sets(replace(SET, counters=())), "counter set set-0 has 0 counters, not 1 to 32"),
        (
            sets(replace(SET, counters=tuple((f"c-{i}", 1) for i in range(33)))),
            "counter set set-0 has 33 counters, not 1 to 32",
        ),
        (
            sets(replace(SET, counters=(("memorySlice0", 1),))),
            "counter 'memorySlice0' of counter set set-0 is not a DNS label",
        ),
        (device(name="mig-1g.10gb"), "device name 'mig-1g.10gb' is not a DNS label"),
        (device(name="d" * 64), "is not a DNS label"),
        (
            device(attributes=tuple((f"a{i}", Number(0)) for i in range(32))),
            "device d0 has more than 32 attributes and capacities",
        ),
        (device(attributes=(("a-b", Number(0)),)), "'a-b' is not an identifier, or a domain and"),
        (device(attributes=(("x/y/z", Number(0)),)), "'x/y/z' is not an identifier"),
        (device(attributes=(("/z", Number(0)),)), "'/z' is not an identifier"),
        (device(capacity=(("a" * 33, 0),)), "is not an identifier, or a domain and an identifier"),
        (
            device(attributes=(("a", Text("é" * 33)),)),
            "device d0: attribute a is longer than 64 bytes",
        ),
        (
            device(attributes=(("a", Version("535.104.05")),)),
            "device d0: attribute a is '535.104.05', not a semantic version",
        ),
        (device(attributes=(("a", Number(2**63)),)), "attribute a is 9223372036854775808, beyond"),
        (device(taints=taints(17)), "device d0 has 17 taints; at most 16 are allowed"),
        (device(taints=taints(1, value="-")), "device d0: taint value '-' is not a label value"),
        (device(taints=taints(1, value="v" * 64)), "is not a label value"),
        (device(taints=taints(1, key="")), "device d0: taint key '' is not a label key"),
        (device(taints=taints(1, key="Up/key")), "taint key 'Up/key' is not a label key"),
        (device(consumes=uses("lost")), "device d0 consumes from 'lost', which no slice has"),
        (
            device(consumes=uses("set-0", "set-1", "set-2")),
            "device d0 consumes from 3 counter sets, more than 2",
        ),
        (
            device(consumes=uses("set-0", "set-0")),
            "device d0: consumed counter set 'set-0' occurs 2 times",
        ),
        (
            device(consumes=(Consumption(counter_set="set-0", counters=()),)),
            "device d0 consumes no counter of set-0",
        ),
        (
            device(consumes=uses("set-0", amount=5)),
            "device d0 consumes 5 of 'memory-slice-0'; counter set set-0 has 4",
        ),
        (
            device(consumes=uses("set-0", counter="media")),
            "device d0 consumes 1 of 'media'; counter set set-0 has no such counter",
        ),
    ],
)
def test_a_broken_rule_gives_exactly_its_message(broken, message):
    (problem,) = problems(broken)
    assert message in problem


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (is_label, ["a", "0-a", "a" * 63], ["", "-a", "a-", "a.b", "A", "a\n", "a" * 64]),
        (is_subdomain, ["a.b-c.0", "a" * 253], ["", "a..b", ".a", "a.-b", "a_b", "a" * 254]),
        (
            is_semver,
            ["0.0.0", "1.2.3-alpha.1", "1.2.3+01"],
            ["1.2", "01.2.3", "1.2.3-01", "1.2.3.4", "1.2.3\n", "1.2.3-" + "a" * 60],
        ),
    ],
)
def test_names_and_versions_follow_the_grammar_of_the_api(check, good, bad):
    assert [text for text in good if not check(text)] == []
    assert [text for text in bad if check(text)] == []
