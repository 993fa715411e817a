"""What the rest of the plugin asks of health, answered by the parts together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from driver.core.ids import GpuUuid
from driver.plugin.health.server_taints import ServerTaints
from driver.plugin.health.whole import Health
from driver.ports.kube import ServerVersion
from tests.plugin.health.shell import FIRST, ONE, SECOND, TWO, MemoryStore, Shell, fault
from tests.plugin.stubs import device, gpu

CLOSED = "the GPUs are let go of"


def whole(shell: Shell, *, refusal: str = "") -> Health:
    """Parts that these questions do not reach are not there."""
    absent: Any = None
    window: Any = SimpleNamespace(refusal=lambda: refusal)
    server: Any = SimpleNamespace(server_version=lambda: ServerVersion(major=1, minor=37))
    return Health(
        custody=shell.custody,
        judged=shell.judged,
        monitor=shell.monitor,
        probes=absent,
        kernel=shell.kernel,
        condition=absent,
        places=shell.places,
        window=window,
        sources=(),
        told=shell.told,
        server=ServerTaints(server),
        hardware=shell.hardware,
    )


def test_a_device_that_was_just_found_is_not_published_before_it_was_judged() -> None:
    shell = Shell(gpu(1))
    shell.custody.take(fault(at=shell.now, on=TWO))
    shell.hardware._told.clear()  # whoever publishes has looked before the news came
    shell.find(gpu(1), gpu(2))
    assert shell.taints() == {}
    assert whole(shell).taints().keys() == {SECOND}


def test_a_plugin_that_stands_by_refuses_by_what_is_stored_now() -> None:
    store = MemoryStore()
    leader, other = Shell(store=store), Shell(store=store, leads=False)
    leader.custody.take(fault(at=leader.now))
    assert "xid-79" in whole(other).refusal([(FIRST, ONE)])


def test_nothing_is_prepared_while_the_gpus_are_let_go_of() -> None:
    wanted = [(SECOND, GpuUuid(TWO))]
    assert whole(Shell(), refusal=CLOSED).refusal(wanted) == CLOSED
    assert whole(Shell()).refusal(wanted) == ""


def test_who_comes_to_lead_tells_what_changes_from_then_on() -> None:
    store = MemoryStore()
    Shell(store=store).custody.take(fault(at=1000))
    shell = Shell(store=store, leads=False)
    whole(shell).lead()
    assert shell.events == []
    shell.custody.take(fault(at=shell.now, on=TWO))
    assert [text.split(":")[0] for _, text in shell.events] == [f"GPU {TWO}"]
    assert set(shell.taints()) <= {FIRST, SECOND, device(1)}
