"""The DaemonSet is updated: the kubelet is never without a plugin, and nobody's pod notices."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e import audit, cluster
from tests.e2e.cluster import (
    DRIVER,
    NAMESPACE,
    apply,
    claim,
    get,
    kubectl,
    node_shell,
    pod,
    slices,
    wait,
)

LOOKING = "/run/tessera-looking"
LOOK = f"""
registered() {{  # any of them: one that was listed may go before it is looked at
  for socket in /var/lib/kubelet/plugins_registry/{DRIVER}*-reg.sock; do
    [ -S "$socket" ] && return
  done
  return 1
}}
touch {LOOKING}
while [ -e {LOOKING} ]; do
  registered || date +%s.%N
  sleep 0.01
done
"""


@contextmanager
def watched(node: str) -> Iterator[list[str]]:
    """The moments, a hundred a second, at which no plugin's registration lies on the node."""
    gaps: list[str] = []
    looking = subprocess.Popen(
        ["docker", "exec", node, "sh", "-c", LOOK], stdout=subprocess.PIPE, text=True
    )
    try:
        yield gaps
    finally:
        node_shell(node, "rm", "-f", LOOKING)
        gaps += looking.communicate(timeout=30)[0].split()


def update() -> None:
    """What a new image does, without one. Returns at once."""
    kubectl("rollout", "restart", "daemonset/tessera-plugin", "-n", NAMESPACE)


def updated(seconds: int = 1) -> bool:
    try:
        kubectl(
            "rollout", "status", "daemonset/tessera-plugin", "-n", NAMESPACE,
            f"--timeout={seconds}s", timeout=seconds + 30,
        )  # fmt: skip
    except cluster.Failed:
        return False
    return True


def start_and_end(name: str, node: str) -> None:
    """A pod with a GPU; it gets it at the first try."""
    apply(claim(name), pod(name, claim_name=name, node=node))
    wait(f"pod/{name}", "condition=Ready")
    kubectl("delete", "pod", name, "--wait")
    kubectl("delete", "resourceclaim", name, "--wait")


def failures() -> list[str]:
    """What the kubelet told of preparations that failed once it had asked a plugin, or found none.

    Its own reading of the claim may be too early for the API server, whose node authorizer learns
    of a pod's claim a moment after the pod: that is before any plugin, and the kubelet tries again.
    """
    events = get("events", "--field-selector", "reason=FailedPrepareDynamicResources")
    told = [event["message"] for event in events["items"]]
    return [message for message in told if "no relationship found between node" not in message]


def test_an_update_in_which_nothing_changes_writes_nothing_and_keeps_the_kubelet_served(
    worker: str,
) -> None:
    apply(claim("kept"), pod("kept", claim_name="kept", node=worker))
    wait("pod/kept", "condition=Ready")
    before, since = slices(), audit.position()
    old = cluster.plugin_pod(worker)["metadata"]["uid"]
    with watched(worker) as gaps:
        update()
        assert updated(seconds=120)
    assert gaps == []
    assert cluster.plugin_pod(worker)["metadata"]["uid"] != old
    assert audit.writes(since) == []
    assert slices() == before
    wait("pod/kept", "condition=Ready")
    (status,) = get("pod", "kept")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    # Prepared by the old plugin, taken back by the new one; `nothing_left` looks for the rest.
    kubectl("delete", "pod", "kept", "--wait")


@pytest.mark.timeout(420)
def test_every_pod_starts_and_ends_while_plugins_are_replaced(worker: str) -> None:
    kubectl("delete", "events", "--all")
    since = audit.position()
    served = 0
    with watched(worker) as gaps:
        update()
        done = False
        while not done:
            done = updated()
            start_and_end(f"pod-{served}", worker)
            served += 1
    assert gaps == []
    assert failures() == []
    assert served > 1
    # A changed order is one replacement; nothing comes or goes.
    assert {w.verb for w in audit.writes(since)} <= {"update"}
