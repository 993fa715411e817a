"""Servers that store no counters, from the beginning or since a feature was switched off."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hack.fakeapi.scheduler import Unschedulable
from hack.fakeapi.strategy import Settings
from tests.plugin.nodes import mig_gpu
from tests.plugin.publishing import Bench, Make
from tests.plugin.stubs import device

OFF = Settings(gates={"DRAPartitionableDevices": False})
SAID = "this server drops counters"


def devices(bench: Bench) -> list[dict[str, Any]]:
    return [d for s in bench.slices() for d in s["spec"].get("devices", ())]


def drop(bench: Bench, *slices: int) -> None:
    """Counters, from now on; these slices are gone, and the plugin has heard of it."""
    bench.server.cluster.settings = OFF
    heard = threading.Semaphore(0)
    bench.publisher.slice_changed = lambda _: heard.release()  # type: ignore[assignment, method-assign]
    for each in [bench.slices()[n] for n in slices]:
        bench.server.cluster.delete("resourceslices", each["metadata"]["name"])
    for _ in slices:
        assert heard.acquire(timeout=10)
    bench.writes()


def comes_to_rest(bench: Bench) -> bool:
    """Whether three looks in a row write nothing. The watch may tell of what was written last a
    moment later, and a look that knows of it only in part has a conflict, which is no failure.
    """
    for _ in range(20):
        bench.writes()
        for _ in range(3):
            bench.look()
        if bench.writes() == 0:
            return True
    return False


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize("gone", [ALL, (0,), (1,)], ids=["all", "counters", "devices"])
def test_counters_that_are_dropped_later_on_are_noticed_at_the_next_write(
    make: Make, caplog: pytest.LogCaptureFixture, gone: tuple[int, ...]
) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    drop(bench, *gone)
    bench.look()
    assert [d["name"] for d in devices(bench)] == [device(1), device(0)]
    assert caplog.text.count(SAID) == 1
    assert bench.problems[-1] == ""
    assert comes_to_rest(bench)


def test_of_a_pool_without_its_counters_no_device_is_written(make: Make) -> None:
    """So it is never complete, and no scheduler takes it for one whose devices exclude nothing."""
    bench = make()
    drop(bench, *ALL)
    bench.look()
    done = [r.verb for r in bench.server.requests.writes() if r.resource == "resourceslices"]
    assert done == ["create", "delete", "create"]


def test_where_counters_are_gone_a_partition_in_use_keeps_its_gpu(make: Make) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    (held,) = bench.allocate("1g.10gb")
    assert held.startswith(device(0))
    drop(bench, *ALL)
    bench.look()
    assert bench.allocate("gpu") == [device(1)]
    with pytest.raises(Unschedulable):
        bench.allocate("gpu")


def test_a_server_that_drops_counters_from_the_beginning_is_offered_whole_gpus(make: Make) -> None:
    drop(make(), *ALL)
    bench = make()
    assert [d["name"] for d in devices(bench)] == [device(0)]
    bench.writes()
    bench.look()
    assert bench.writes() == 0
