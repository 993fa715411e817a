"""Taints are paced and end right; refusals and the stream are at once."""

from __future__ import annotations

from api.resource.types import Taint, TaintEffect
from driver.core.errors import KubeUnavailable
from driver.core.health.signals import CannotTell, Need, ProbePassed, Scope, Source
from driver.core.ids import DeviceName
from driver.plugin.health.server_taints import ServerTaints
from driver.ports.kube import ServerVersion
from driver.ports.kubelet import DeviceState
from tests.plugin.health.shell import FIRST, ONE, SECOND, TWO, Shell, fault
from tests.plugin.stubs import device, gpu


def test_a_signal_that_flaps_changes_taints_once_a_second_and_the_last_state_stands() -> None:
    shell = Shell()
    for n in range(60):
        shell.wait(0.1)
        if n % 2:
            shell.custody.take(ProbePassed(scope=Scope(gpu=ONE), at=shell.now))
        else:
            shell.custody.take(fault("flap", Need.PROBE, at=shell.now))
    shell.wait(0.1)
    shell.custody.take(fault("flap", Need.PROBE, at=shell.now))
    assert 3 <= len(shell.taint_changes) <= 7
    gaps = [b - a for a, b in zip(shell.taint_changes, shell.taint_changes[1:], strict=False)]
    assert min(gaps) >= 1.0
    shell.wait(1.1)
    assert shell.taints() == {FIRST: ["flap"]}


def test_a_refusal_and_the_stream_are_never_held_back() -> None:
    shell = Shell()
    shell.custody.take(fault("one", Need.RESET, at=shell.now, on=TWO))
    shell.custody.take(fault("two", Need.REBOOT, at=shell.now, on=TWO))
    shell.custody.take(fault(at=shell.now))
    assert shell.taints() == {SECOND: ["two"]}
    assert "xid-79" in shell.judged.refusal([(FIRST, ONE)])
    states = {each.device: each.state for each in shell.judged.current()}
    assert states == {FIRST: DeviceState.UNHEALTHY, SECOND: DeviceState.UNHEALTHY}


def test_a_device_that_is_new_is_never_without_the_taints_of_its_gpu() -> None:
    shell = Shell(gpu(1), gpu(2))
    shell.custody.take(fault("one", Need.RESET, at=shell.now, on=TWO))
    shell.custody.take(fault(at=shell.now, on=gpu(3).uuid))
    shell.find(gpu(1), gpu(2), gpu(3))
    assert shell.taints() == {SECOND: ["one"], device(3): ["xid-79"]}


def test_the_refusal_names_device_fault_time_and_what_clears_it_and_is_for_hard_faults_only() -> (
    None
):
    shell = Shell()
    shell.custody.take(fault("xid-79", Need.REBOOT, at=0))
    shell.custody.take(fault("slow", Need.WATCH, at=0, on=TWO))
    text = shell.judged.refusal([(SECOND, TWO), (FIRST, ONE)])
    for part in (FIRST, "xid-79", "since 1970-01-01", "a reboot of the node", "an administrator"):
        assert part in text
    assert shell.judged.refusal([(SECOND, TWO)]) == ""


def test_the_stream_says_since_when_and_why_and_unknown_is_a_state_of_its_own() -> None:
    shell = Shell()
    lost = CannotTell(source=Source.POLL, scope=Scope(gpu=ONE), name="nvml", at=900, detail="hangs")
    shell.custody.take(lost)
    first, second = shell.judged.current()
    assert (first.state, first.since) == (DeviceState.UNKNOWN, 900)
    assert "nvml (hangs)" in first.message
    assert (second.state, second.since, second.message) == (DeviceState.HEALTHY, 1000, "")
    shell.custody.take(fault("slow", Need.WATCH, at=shell.now, on=TWO))
    degraded = shell.judged.current()[1]
    assert (degraded.state, degraded.since) == (DeviceState.HEALTHY, 1000)
    assert "slow" in degraded.message


class Server:
    def __init__(self, minor: int) -> None:
        self.minor = minor
        self.asked = 0

    def server_version(self) -> ServerVersion:
        self.asked += 1
        if self.minor == 0:
            raise KubeUnavailable("away", what="get the server's version")
        return ServerVersion(major=1, minor=self.minor)


ENDS = {DeviceName("d"): (Taint(key="k", value="v", effect=TaintEffect.NO_EXECUTE),)}
KEEPS = {DeviceName("d"): (Taint(key="k", value="v", effect=TaintEffect.NO_SCHEDULE),)}


def test_k1_pods_are_ended_only_where_the_server_spares_those_that_tolerate_it() -> None:
    assert ServerTaints(Server(34)).taken(ENDS) == KEEPS
    assert ServerTaints(Server(35)).taken(ENDS) == ENDS


def test_a_taint_that_ends_no_pod_is_the_same_at_every_server() -> None:
    shown = Taint(key="k", value="v", effect=TaintEffect.NONE)
    beside = {DeviceName("d"): (*ENDS[DeviceName("d")], shown), DeviceName("e"): (shown,)}
    kept = {DeviceName("d"): (*KEEPS[DeviceName("d")], shown), DeviceName("e"): (shown,)}
    assert ServerTaints(Server(34)).taken(beside) == kept
    assert ServerTaints(Server(34)).taken(kept) is kept


def test_the_server_is_asked_once_and_only_where_it_matters() -> None:
    server = Server(0)
    taints = ServerTaints(server)
    assert taints.taken(KEEPS) is KEEPS
    assert server.asked == 0
    assert taints.taken(ENDS) == KEEPS
    server.minor = 35
    assert [taints.taken(ENDS) for _ in range(3)] == [ENDS] * 3
    assert server.asked == 2


def test_a_fault_does_not_wait_for_what_was_put_right_just_before_it() -> None:
    shell = Shell()
    shell.custody.take(fault("one", Need.PROBE, at=shell.now, on=TWO))
    shell.wait(3.0)
    shell.custody.take(ProbePassed(scope=Scope(gpu=TWO), at=shell.now))
    assert shell.taints() == {}
    shell.custody.take(fault(at=shell.now))
    assert shell.taints() == {FIRST: ["xid-79"]}


def test_whoever_is_told_of_a_fault_finds_its_taint_given_to_the_slices_already() -> None:
    shell = Shell()
    found: list[dict[str, list[str]]] = []
    shell.judged.subscribe(lambda: found.append(shell.taints()))
    shell.custody.take(fault(at=shell.now))
    assert found == [{FIRST: ["xid-79"]}]
