"""A node for properties: the plugin, an API server, and a scheduler that knows what that stores.

Every round is made as the publisher makes it, by the same functions in the same order.
"""

import json
from collections import Counter
from dataclasses import replace
from functools import lru_cache

from api.resource.codec import NodeOwner, decode_stored, encode_slice
from api.resource.limits import problems
from api.resource.types import Taint, TaintEffect, Text
from driver.core.boards import kept_taint
from driver.core.choices import Choices
from driver.core.claims import Intent, Wanted
from driver.core.described import describe_node, publish
from driver.core.diff import Delete, plan_writes
from driver.core.geometry import Placement
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.ledger import conflict, entry_for
from driver.core.live import Foreign, find_foreign, live_state
from driver.core.modes import Mode, Rule
from driver.core.packing import Policy
from driver.core.pools import kept_devices, offer
from driver.core.reorder import settle
from driver.core.snapshot import InstanceFacts
from driver.core.withheld import withhold
from tests.data.mig_boards import A30, H100
from tests.property.server import Server
from tests.unit.core.given import DRIVER, NODE, POOL, cut, gpu, snapshot

OWNER = NodeOwner(name=NODE, uid="node")
GPUS = (cut(0), cut(1), cut(2, board=A30), gpu(3))
WHOLE = "gpu"
FAULT = Taint(key=f"{DRIVER}/fault", value="xid-79", effect=TaintEffect.NO_SCHEDULE)
CHOICES = [Choices(), Choices(policy=Policy.DISTRIBUTED), Choices(min_whole_gpus=1)]
FEWER = [
    Choices(profiles=("2g.20gb", "3g.40gb")),
    Choices(profiles=("1g.10gb",)),
    Choices(rules=(Rule(mode=Mode.FULL, index=0), Rule(mode=Mode.FULL, index=2))),
]
RESTARTS = [
    *(CHOICES + FEWER),
    Choices(profiles=("1g.10gb+me", "3g.40gb"), min_whole_gpus=1),
    Choices(rules=(Rule(mode=Mode.EXCLUDED, index=1),), min_whole_gpus=2),
]


@lru_cache
def inventory_of(gpus, choices):
    return build_inventory(snapshot(*gpus), choices)


@lru_cache
def described_of(gpus, choices):
    return describe_node(inventory_of(gpus, choices), choices, driver=DRIVER, node=NODE)


class Remembering(Server):
    """Decodes each version of an object once."""

    def __init__(self):
        super().__init__()
        self._known = {}

    def stored(self):
        return [self._decoded(obj) for obj in self.objects.values()]

    def _decoded(self, obj):
        version = obj["metadata"]["resourceVersion"]
        if version not in self._known:
            self._known[version] = decode_stored(obj)
        return self._known[version]


class Node:
    """The plugin, an API server, and a scheduler that knows only what that server stores."""

    def __init__(self, choices):
        self.choices = choices
        self.server = Remembering()
        self.here = list(GPUS)
        self.others = ()
        self.sick = {}
        self.allocated = {}
        self.entries = {}
        self.publish()

    @property
    def gpus(self):
        return tuple(self.cut(g) for g in self.here)

    @property
    def inventory(self):
        return inventory_of(self.gpus, self.choices)

    def cut(self, facts):
        """With an instance for each partition that is prepared there."""
        instances = tuple(
            InstanceFacts(
                id=number, profile_id=0, placement=Placement(start=h.slot.start, size=h.slot.size)
            )
            for number, h in enumerate(self.holdings())
            if h.gpu == facts.uuid and h.slot is not None
        )
        return replace(facts, mig=replace(facts.mig, instances=instances))

    def holdings(self):
        return [h for name in sorted(self.entries) for h in self.entries[name].holdings]

    def prepare(self, name):
        """As the plugin does it: what it does not offer, or what somebody holds, it refuses."""
        if name in self.inventory.devices and name not in self.entries:
            entry = entry_of(self.inventory, name)
            if not conflict(entry, self.entries.values()):
                self.entries[name] = entry

    def contents(self):
        return [s.content for s in self.server.stored() if s.content is not None]

    def pool(self):
        """What the publisher wants, by the same functions in the same order."""
        inventory, stored = self.inventory, self.server.stored()
        entries = [*self.entries.values()]
        foreign = (*self.others, *find_foreign(inventory, entries))
        live = live_state(inventory, self.allocated, entries, foreign)
        sick = {n: (FAULT,) for n, d in inventory.devices.items() if self.is_sick(d)}
        taints, live = withhold(inventory, live, foreign, sick, self.choices, driver=DRIVER)
        described = described_of(self.gpus, self.choices)
        kept = kept_devices(stored, in_use=self.allocated.keys() | self.entries.keys())
        fresh = offer(described, live=live, kept=kept, taints=taints)
        return settle(fresh, stored, described, live)

    def is_sick(self, device):
        """A GPU's fault is of all its devices, a partition's of those that would use its slots."""
        return bool(device.slots & self.sick.get(device.gpu.uuid, 0))

    def publish(self):
        """Write what differs; a reader looks after every single write."""
        pool = self.pool()
        assert list(problems(pool)) == []
        before = self.server.newest(POOL)
        same_devices = {d.name: d for d in self.devices()} == {
            d.name: d for s in pool.slices for d in s.devices
        }
        for write in plan_writes(pool, self.server.stored(), owner=OWNER):
            assert not (isinstance(write, Delete) and same_devices and before)
            self.server.apply(write, pool, OWNER)
            self.check_reader()
        assert plan_writes(self.pool(), self.server.stored(), owner=OWNER) == []
        if same_devices and before:
            assert self.server.newest(POOL) == before, "an order alone was a new generation"
        stored = {d.name: d for d in self.devices()}
        self.allocated = {name: stored[name] for name in self.allocated}
        self.check_reserved()

    def check_reserved(self):
        reserved = {ALL[d.name].gpu.uuid for d in self.devices() if kept_taint(DRIVER) in d.taints}
        assert reserved.isdisjoint(ALL[name].gpu.uuid for name in self.used())
        assert reserved.isdisjoint(gpu for gpu, slots in self.sick.items() if slots)

    def used(self):
        return self.allocated.keys() | self.entries.keys()

    def check_reader(self):
        """A scheduler skips a pool that is incomplete; a complete one has all that is in use."""
        view = self.server.view(POOL)
        if view is None:
            return
        devices = {d.name: d for _, content in view for d in content.devices}
        sets = {c.name for _, content in view for c in content.counter_sets}
        for name, given_away in self.allocated.items():
            now = self.inventory.devices.get(name)
            listed = publish(self.inventory, now, self.choices).consumes if now else None
            assert (consumes := devices[name].consumes) in (given_away.consumes, listed)
            assert {c.counter_set for c in consumes} <= sets

    def devices(self):
        """In the order in which the scheduler visits them."""
        return [d for s in sorted(self.contents(), key=lambda s: s.name) for d in s.devices]

    def allocate(self, kind):
        """First fit by counters and taints; the device, if there is one."""
        left = Counter[tuple[str, str]]()
        for s in self.contents():
            for c in s.counter_sets:
                left.update({(c.name, name): total for name, total in c.counters})
        for d in self.allocated.values():
            left.subtract(taken(d))
        for d in self.devices():
            free = d.name not in self.allocated and not d.taints and kind_of(d) == kind
            if free and all(left[key] >= amount for key, amount in taken(d).items()):
                self.allocated[d.name] = d
                return d
        return None

    def fill(self):
        """With whatever the scheduler believes to be free, full GPUs first."""
        for kind in KINDS:
            while self.allocate(kind):
                continue


def taken(device):
    return {(c.counter_set, name): n for c in device.consumes for name, n in c.counters}


def kind_of(device):
    attributes = dict(device.attributes)
    value = attributes.get("profile", attributes["type"])
    assert isinstance(value, Text)
    return value.value


def as_bytes(pool):
    objects = [
        encode_slice(s, pool=pool, generation=1, owner=OWNER, version="v1") for s in pool.slices
    ]
    return json.dumps(objects).encode()


def entry_of(inventory, name):
    wanted = (Wanted(request="r", device=inventory.devices[name]),)
    intent = Intent(namespace="n", name=name, uid=ClaimUID(name), wanted=wanted)
    return entry_for(intent, pool=POOL, boot_id="b")


ALL = {name: d for c in RESTARTS for name, d in inventory_of(GPUS, c).devices.items()}
KINDS = (WHOLE, *(p.name for p in (*H100.profiles, *A30.base)))


def happen(node, what, which):
    """One event; the plugin has not heard of it yet."""
    match what:
        case "allocate":
            node.allocate(which)
        case "prepare" if node.allocated:
            node.prepare(sorted(node.allocated)[which % len(node.allocated)])
        case "delete" if node.allocated:
            # By force: what is prepared still runs.
            del node.allocated[sorted(node.allocated)[which % len(node.allocated)]]
        case "end" if node.used():
            name = sorted(node.used())[which % len(node.used())]
            node.allocated.pop(name, None)
            node.entries.pop(name, None)
        case "restart":
            node.choices = which
        case "foreign":
            board = GPUS[which % 2]
            slots = {0: (), 1: (0b1,), 2: (0b1100_0000,), 3: (0b1111,)}[which]
            node.others = tuple(Foreign(gpu=board.uuid, instance=9, slots=s) for s in slots)
        case "sick":
            board, mask = GPUS[which // 3], {0: 0, 1: 0b1, 2: -1}[which % 3]
            node.sick = {**node.sick, board.uuid: mask}
        case "lose":
            away = GPUS[which]
            node.here = [g for g in GPUS if g is not away] if len(node.here) == 4 else list(GPUS)
        case _:
            assert what in {"prepare", "delete", "end"}


def slots_of(name):
    device = ALL[name]
    mask = device.slots if device.slots > 0 else 0xFFF
    return device.gpu.uuid, mask
