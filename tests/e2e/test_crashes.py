"""The plugin dies in the middle of things: nothing is made twice, nothing is left behind."""

from __future__ import annotations

from tests.e2e import cluster, hardware
from tests.e2e.cluster import NAMESPACE, PLUGIN_DIR, apply, kubectl, node_shell, pod, until, wait
from tests.e2e.test_partitions import mig_claim, placed


def entries(node: str) -> str:
    """What the ledger holds, as it is on the disk."""
    return node_shell(node, "sh", "-c", f"cat {PLUGIN_DIR}/ledger/*.json 2>/dev/null || true")


def test_a_kill_in_the_middle_of_a_preparation_makes_one_partition(worker: str) -> None:
    name = cluster.plugin_pod(worker)["metadata"]["name"]
    with hardware.machine(worker) as machine:
        slow = machine.rule("nvmlGpuInstanceCreateComputeInstance*", delay_ms=20_000)
        apply(mig_claim("cut", "2g.20gb"), pod("cut", claim_name="cut", node=worker))
        # The GPU instance is there, its compute instance is not: the worst moment.
        until(lambda: hardware.instances(worker) != [], seconds=60)
        assert '"phase":"started"' in entries(worker)
        cluster.kill_container(worker, "plugin")
        slow.clear()
    wait("pod/cut", "condition=Ready", seconds=180)
    (only,) = hardware.instances(worker)
    place = (hardware.uuids(worker)[only.gpu], only.profile, only.start)
    assert place == placed(worker, "cut")
    assert '"phase":"completed"' in entries(worker)
    assert cluster.plugin_pod(worker)["metadata"]["name"] == name
    kubectl("delete", "pod", "cut", "--wait")
    kubectl("delete", "resourceclaim", "cut", "--wait")
    until(lambda: not hardware.instances(worker), why=lambda: hardware.instances(worker))


def test_a_claim_that_went_while_the_plugin_was_away_leaves_nothing(worker: str) -> None:
    apply(mig_claim("gone", "1g.10gb"), pod("gone", claim_name="gone", node=worker))
    wait("pod/gone", "condition=Ready")
    selector = '{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}'
    kubectl("patch", "daemonset", "-n", NAMESPACE, "tessera-plugin", "-p", selector)
    selected = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=plugin")
    kubectl("wait", "pods", *selected, "--for=delete", "--timeout=90s")
    kubectl("delete", "pod", "gone", "--force", "--grace-period=0")
    kubectl("delete", "resourceclaim", "gone", "--wait")
    assert len(hardware.instances(worker)) == 1
    kubectl("rollout", "undo", "daemonset/tessera-plugin", "-n", NAMESPACE)
    kubectl("rollout", "status", "daemonset/tessera-plugin", "-n", NAMESPACE, "--timeout=120s")
    until(lambda: not hardware.instances(worker), seconds=180, why=lambda: entries(worker))
    until(lambda: not cluster.left_behind(worker), why=lambda: cluster.left_behind(worker))
