"""A claim for a GPU, from the scheduler to a running container."""

from __future__ import annotations

from tests.e2e import cluster
from tests.e2e.cluster import apply, claim_template, devices, get, kubectl, node_shell, pod, wait


def in_pod(name: str, *command: str) -> str:
    return kubectl("exec", name, "--", *command)


def held(pod_name: str) -> str:
    """The device that the pod's claim was given."""
    status = get("pod", pod_name)["status"]["resourceClaimStatuses"][0]
    allocation = get("resourceclaim", status["resourceClaimName"])["status"]["allocation"]
    device: str = allocation["devices"]["results"][0]["device"]
    return device


def test_a_pod_sees_exactly_its_gpu(worker: str) -> None:
    apply(claim_template("one"), pod("a", template="one", node=worker))
    wait("pod/a", "condition=Ready")

    device = devices(worker)[held("a")]
    uuid = device["attributes"]["uuid"]["string"]
    nodes = in_pod("a", "sh", "-c", "stat -c '%n %F %t:%T' /dev/nvidia*").splitlines()
    own = [line for line in nodes if line.split()[0].removeprefix("/dev/nvidia").isdigit()]
    assert len(own) == 1, nodes
    path = own[0].split()[0]
    on_node = node_shell(
        worker, "stat", "-c", "%F %t:%T", f"/var/lib/tessera-sim/root{path}"
    ).strip()
    assert own[0] == f"{path} {on_node}"
    assert on_node.startswith("character special file c3:")

    environment = in_pod("a", "env")
    assert f"TESSERA_DEVICES={uuid}" in environment.splitlines()
    assert "NVIDIA_VISIBLE_DEVICES=void" in environment.splitlines()
    assert "libnvidia-ml.so.1" in in_pod("a", "ls", "/usr/lib/x86_64-linux-gnu")
    assert "nvidia-smi" in in_pod("a", "ls", "/usr/bin")


def test_three_pods_for_two_gpus_take_turns(worker: str) -> None:
    apply(claim_template("one"))
    apply(*(pod(name, template="one", node=worker) for name in ("a", "b")))
    for name in ("a", "b"):
        wait(f"pod/{name}", "condition=Ready")
    assert held("a") != held("b")
    apply(pod("c", template="one", node=worker))
    wait("pod/c", "condition=PodScheduled=false")

    kubectl("delete", "pod", "a", "--wait")
    wait("pod/c", "condition=Ready")
    assert held("c") != held("b")


def test_one_claim_may_hold_two_gpus(worker: str) -> None:
    apply(claim_template("two", count=2), pod("a", template="two", node=worker))
    wait("pod/a", "condition=Ready")
    environment = in_pod("a", "env").splitlines()
    (listed,) = [line for line in environment if line.startswith("TESSERA_DEVICES=")]
    assert len(listed.split(",")) == 2
    nodes = in_pod("a", "sh", "-c", "ls /dev/nvidia[0-9]*").split()
    assert len(nodes) == 2


def test_a_deleted_pod_leaves_nothing_on_its_node(worker: str) -> None:
    apply(claim_template("one"), pod("a", template="one", node=worker))
    wait("pod/a", "condition=Ready")
    assert len(cluster.left_behind(worker)) == 2
    kubectl("delete", "pod", "a", "--wait")
    cluster.until(lambda: not cluster.left_behind(worker))


def test_the_plugin_has_no_right_that_it_does_not_need(worker: str) -> None:
    spec = cluster.plugin_pod(worker)["spec"]
    (container,) = spec["containers"]
    rights = container["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert "privileged" not in rights
    assert not spec.get("hostNetwork")
    assert not spec.get("hostPID")
    for words, answer in {
        ("list", "pods"): "no",
        ("get", "secrets"): "no",
        ("update", "nodes"): "no",
        ("update", "resourceclaims"): "no",
        ("delete", "resourceclaims"): "no",
        ("create", "resourceslices"): "yes",
        ("watch", "resourceclaims"): "yes",
    }.items():
        account = f"system:serviceaccount:{cluster.NAMESPACE}:tessera-plugin"
        said = cluster.run(
            "sh", "-c", f"kubectl auth can-i {' '.join(words)} --as {account} || true"
        )
        assert said.strip() == answer, words
