"""Hardware equals ledger equals CDI: the invariants, read from the disk and the GPUs anew."""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import combinations

from driver.core.ids import ClaimUID, GpuUuid
from driver.core.ledger import Entry, Phase, conflict
from driver.core.names import cdi_file
from driver.core.snapshot import InstanceFacts
from driver.state.ledger import LedgerDir
from tests.crash.plugin import Plugin
from tests.crash.world import NODE, World

Place = tuple[GpuUuid, int, int]
"""GPU, start, size."""


def hardware(plugin: Plugin) -> dict[Place, InstanceFacts]:
    return {
        (gpu, i.placement.start, i.placement.size): i
        for gpu in plugin.gpus
        for i in plugin.mig.instances(gpu)
    }


def modes(plugin: Plugin) -> list[bool]:
    return [plugin.mig.mode(gpu).enabled for gpu in plugin.gpus]


def on_disk(world: World) -> dict[ClaimUID, Entry]:
    """What a plugin that starts now would read."""
    damaged: list[str] = []
    ledger = LedgerDir(world.ledger, NODE, on_damage=lambda _, why: damaged.append(why))
    assert damaged == []
    return dict(ledger.entries())


def temp_files(world: World) -> list[str]:
    """What a write that could not be undone leaves, until the next start."""
    return [path.name for folder in (world.ledger, world.cdi) for path in folder.glob("*.tmp")]


def check(
    world: World,
    plugin: Plugin,
    *,
    prepared: Collection[str],
    others: Collection[Place] = (),
) -> None:
    """`prepared`: the UIDs of exactly the claims that are there, complete. `others`: instances
    that Tessera did not make.
    """
    entries = on_disk(world)
    assert set(entries) == set(prepared), f"ledger has {sorted(entries)}, not {sorted(prepared)}"
    assert dict(plugin.entries()) == entries, "the ledger in memory is not the one on disk"
    assert all(e.phase is Phase.COMPLETED for e in entries.values())
    files = sorted(p.name for p in world.cdi.glob("*.json"))
    assert files == sorted(cdi_file(ClaimUID(uid)) for uid in prepared), f"CDI has {files}"
    there = hardware(plugin)
    ours: set[Place] = set()
    for entry in entries.values():
        check_cdi(world, entry)
        for holding in entry.holdings:
            if holding.slot is None:
                continue
            place = (holding.gpu, holding.slot.start, holding.slot.size)
            assert place in there, f"{entry.name} has {holding.device}, which is not there"
            uuids = {c.uuid for c in there[place].compute}
            assert holding.uuid in uuids, f"{holding.device} is {uuids}, not {holding.uuid}"
            if holding.slot.ours:
                ours.add(place)
    assert set(there) == ours | set(others), f"on the GPUs: {sorted(there)}, explained: {ours}"
    for one, other in combinations(entries.values(), 2):
        assert not conflict(one, [other])


def check_cdi(world: World, entry: Entry) -> None:
    """The container is told what the ledger says."""
    spec = json.loads((world.cdi / cdi_file(entry.uid)).read_text())
    told = {e for d in spec["devices"] for e in d["containerEdits"].get("env", ())}
    told |= set(spec.get("containerEdits", {}).get("env", ()))
    for holding in entry.holdings:
        assert any(holding.uuid in each for each in told), f"{holding.uuid} is not in {told}"
        assert holding.cdi_id.rpartition("=")[2] in {d["name"] for d in spec["devices"]}
