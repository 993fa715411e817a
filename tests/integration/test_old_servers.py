"""Sick GPUs at servers that drop taints: what is withheld is not offered there either."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hack.testbed import Testbed
from tests.integration.test_health import (
    OFF_THE_BUS,
    QUICK,
    devices_of,
    looked,
    of_gpu,
    prepare,
    slot_of,
    taints,
    until,
    xid,
)

pytestmark = pytest.mark.timeout(180)

SAID = "this server drops taints"


def names(bed: Testbed) -> set[str]:
    return set(devices_of(bed.slices()))


def slice_writes(bed: Testbed) -> list[str]:
    """Those that changed something, since the last call."""
    found = [r.verb for r in bed.api.requests.writes() if r.resource == "resourceslices"]
    bed.api.requests.clear()
    return found


def test_a_sick_gpu_leaves_the_slices_but_for_what_is_held_and_nothing_is_written_twice(
    bed: Testbed,
) -> None:
    cluster = bed.api.cluster
    cluster.settings = replace(cluster.settings, gates={"DRADeviceTaints": False})
    bed.start_plugin(*QUICK)
    running, late = bed.claim("a", profile="1g.10gb"), bed.claim("b", profile="1g.10gb")
    first = prepare(bed, running)
    sick = slot_of(bed, first.devices[0].device)
    mine, others = of_gpu(bed, sick), of_gpu(bed, 1 - sick)
    xid(bed, sick, OFF_THE_BUS)
    until(bed, lambda: len(names(bed)) == len(others) + 2)
    assert names(bed) >= others
    assert first.devices[0].device in names(bed)
    assert taints(bed) == {}
    assert "is withheld: xid-79" in prepare(bed, late).error
    assert prepare(bed, running) == first
    slice_writes(bed)
    looked(bed, 3)
    assert slice_writes(bed) == []
    bed.end_claim(running)
    until(bed, lambda: len(names(bed) & mine) == 1)
    bed.stop_plugin()
    bed.start_plugin(*QUICK)
    looked(bed, 2)
    assert len(names(bed) & mine) == 1
    assert bed.log.read_text().count(SAID) == 2


def test_before_136_a_sick_gpu_that_nobody_holds_is_not_offered(bed: Testbed) -> None:
    cluster = bed.api.cluster
    cluster.settings = replace(cluster.settings, git_version="v1.34.2")
    bed.start_plugin(*QUICK)
    held = bed.claim("a")
    assert prepare(bed, held).error == ""
    for slot in (0, 1):
        xid(bed, slot, OFF_THE_BUS)
    until(bed, lambda: len(names(bed)) == 1)
    slice_writes(bed)
    looked(bed, 3)
    assert slice_writes(bed) == []
    bed.end_claim(held)
    until(bed, lambda: names(bed) == set())
