"""What happens to clusters: restarts of everything. No claim is lost, nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import audit, cluster
from tests.e2e.cluster import (
    NAMESPACE,
    Obj,
    apply,
    claim,
    get,
    kind,
    kubectl,
    node_shell,
    pod,
    slices,
    until,
    wait,
)


@pytest.fixture
def running(worker: str) -> Iterator[str]:
    """A pod with a claim, running on `worker`; its name. It must still run at the end."""
    apply(claim("kept"), pod("kept", claim_name="kept", node=worker))
    wait("pod/kept", "condition=Ready")
    before = allocation()
    yield "kept"
    wait("pod/kept", "condition=Ready")
    assert allocation() == before


def allocation() -> object:
    return get("resourceclaim", "kept")["status"]["allocation"]["devices"]


def restarts(name: str = "kept") -> int:
    (status,) = get("pod", name)["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count


def ready_plugin(node: str) -> bool:
    try:
        status = cluster.plugin_pod(node)["status"]
    except ValueError:  # none, or two while one is replaced
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])


def another_pod_works(worker: str) -> None:
    apply(claim("after"), pod("after", claim_name="after", node=worker))
    wait("pod/after", "condition=Ready")


def offered(node: str) -> dict[str, list[Obj]]:
    """What each slice holds, in any order: slices made anew are in the order of the moment."""
    return {
        s["metadata"]["name"]: sorted(
            [*s["spec"].get("devices", []), *s["spec"].get("sharedCounters", [])],
            key=lambda entry: entry["name"],
        )
        for s in slices(node)
    }


@pytest.mark.usefixtures("running")
def test_a_restarted_plugin_writes_nothing(worker: str) -> None:
    before, since = slices(worker), audit.position()
    kubectl("delete", "pod", "-n", NAMESPACE, cluster.plugin_pod(worker)["metadata"]["name"])
    until(lambda: ready_plugin(worker), why=lambda: cluster.plugin_pod(worker)["status"])
    assert audit.writes(since) == []
    assert slices(worker) == before
    another_pod_works(worker)
    assert restarts() == 0


@pytest.mark.usefixtures("running")
def test_a_restarted_kubelet_gets_its_slices_back(worker: str) -> None:
    """The kubelet itself deletes the slices of its node at start; only that is made good."""
    before, since = offered(worker), audit.position()
    node_shell(worker, "systemctl", "restart", "kubelet")
    wait(f"node/{worker}", "condition=Ready")
    until(lambda: offered(worker) == before, why=lambda: offered(worker))
    assert {w.verb for w in audit.writes(since)} <= {"create"}
    another_pod_works(worker)
    assert restarts() == 0


@pytest.mark.usefixtures("running")
def test_a_rebooted_node_runs_its_pod_again_on_the_same_gpu(worker: str) -> None:
    before = offered(worker)
    kind("reboot", worker)
    wait(f"node/{worker}", "condition=Ready", seconds=180)
    until(lambda: restarts() > 0, seconds=120, why=lambda: get("pod", "kept")["status"])
    until(lambda: ready_plugin(worker), seconds=120)
    wait("pod/kept", "condition=Ready", seconds=180)
    until(lambda: offered(worker) == before, why=lambda: offered(worker))


@pytest.mark.usefixtures("running")
def test_a_restarted_api_server_is_survived(worker: str) -> None:
    control_plane = next(
        n["metadata"]["name"]
        for n in get("nodes")["items"]
        if "control-plane" in n["metadata"]["name"]
    )
    before = cluster.plugin_pod(worker)
    since = audit.position()
    cluster.kill_container(control_plane, "kube-apiserver")
    until(lambda: not api_answers(), seconds=30)
    until(api_answers, seconds=120)
    assert audit.writes(since) == []
    another_pod_works(worker)
    again = cluster.plugin_pod(worker)
    assert again["metadata"]["uid"] == before["metadata"]["uid"]
    assert restart_counts(again) == restart_counts(before)


def restart_counts(of: cluster.Obj) -> list[int]:
    return [c["restartCount"] for c in of["status"]["containerStatuses"]]


def api_answers() -> bool:
    try:
        kubectl("get", "--raw", "/readyz", "--request-timeout=2s")
    except cluster.Failed:
        return False
    return True


def test_a_claim_released_while_the_plugin_is_away_is_released_when_it_is_back(
    worker: str,
) -> None:
    apply(claim("kept"), pod("kept", claim_name="kept", node=worker))
    wait("pod/kept", "condition=Ready")
    selector = '{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}'
    kubectl("patch", "daemonset", "-n", NAMESPACE, "tessera-plugin", "-p", selector)
    until(lambda: not plugin_pods(), seconds=90, why=plugin_pods)
    kubectl("delete", "pod", "kept", "--wait=false")
    kubectl("rollout", "undo", "daemonset/tessera-plugin", "-n", NAMESPACE)
    until(lambda: ready_plugin(worker), seconds=90)
    kubectl("wait", "pod/kept", "--for=delete", "--timeout=90s")
    until(lambda: not cluster.left_behind(worker), why=lambda: cluster.left_behind(worker))


def plugin_pods() -> list[str]:
    items = get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=plugin")["items"]
    return [p["metadata"]["name"] for p in items]
