"""The cluster of `python3 -m hack.kind up` is what tests of the driver rely on."""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kind import cluster as kind_cluster, lifecycle
from hack.kind.cluster import Cluster
from hack.kind.components import BUSYBOX
from hack.kind.gpus import NODE_ROOT, NODE_RUN, NodeGpus
from hack.kind.paths import State
from hack.simnvml.kit import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
WORKERS = ("tessera-worker", "tessera-worker2")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = lifecycle.find(State.default())
    if found is None or not found.answers() or not set(WORKERS) <= set(found.containers()):
        pytest.skip("needs two workers; run `python3 -m hack.kind up`")
    return found


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"check-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def in_node(cluster: Cluster, node: str, *command: str) -> str:
    return cluster.engine.docker("exec", node, *command)


def pod(name: str, node: str, script: str) -> dict[str, object]:
    container = {"name": "c", "image": BUSYBOX, "command": ["sh", "-c", script]}
    spec = {
        "nodeName": node,
        "dnsPolicy": "Default",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def create(cluster: Cluster, namespace: str, tmp_path: Path, document: dict[str, object]) -> None:
    path = tmp_path / "object.json"
    path.write_text(json.dumps(document))
    cluster.kubectl("-n", namespace, "create", "-f", str(path))


def test_dynamic_resource_allocation_is_served_without_any_gate(cluster: Cluster):
    listed = cluster.kubectl("api-resources", "--api-group=resource.k8s.io", "-o", "name").split()
    wanted = {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}
    assert {f"{name}.resource.k8s.io" for name in wanted} <= set(listed)


def test_a_change_from_outside_is_seen_in_the_node_and_no_two_nodes_share_a_gpu(cluster: Cluster):
    machines = {name: Machine.open(NodeGpus.of(cluster.state, name).run) for name in WORKERS}
    uuids = [gpu.uuid for machine in machines.values() for gpu in machine.gpus]
    assert len(set(uuids)) == len(uuids) > len(WORKERS)
    machines[WORKERS[0]].gpu(0).set(name="changed from outside")
    environment = ("env", f"SIMNVML_STATE={NODE_RUN}")
    library = f"LD_LIBRARY_PATH={NODE_ROOT}/usr/lib/x86_64-linux-gnu"
    listing = (*environment, library, f"{NODE_ROOT}/usr/bin/nvidia-smi", "-L")
    try:
        assert "changed from outside" in in_node(cluster, WORKERS[0], *listing)
        assert "changed from outside" not in in_node(cluster, WORKERS[1], *listing)
    finally:
        machines[WORKERS[0]].gpu(0).set(name="NVIDIA H100 80GB HBM3")
        for machine in machines.values():
            machine.close()


def test_device_nodes_are_real_in_the_node(cluster: Cluster):
    kind = in_node(cluster, WORKERS[0], "stat", "-c", "%F %t:%T", f"{NODE_ROOT}/dev/nvidia0")
    assert kind.strip() == "character special file c3:0"


def test_a_pod_reaches_a_pod_on_another_node_and_the_api_server(
    cluster: Cluster, namespace: str, tmp_path: Path
):
    serve = "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"
    create(cluster, namespace, tmp_path, pod("server", WORKERS[0], serve))
    wait = ("-n", namespace, "wait", "--timeout=60s")
    cluster.kubectl(*wait, "--for=condition=Ready", "pod/server")
    path = "jsonpath={.status.podIP}"
    address = cluster.kubectl("-n", namespace, "get", "pod", "server", "-o", path)
    ask = f"wget -q -O- http://{address}:8080/ && nc -w 5 10.96.0.1 443 < /dev/null && echo api"
    create(cluster, namespace, tmp_path, pod("client", WORKERS[1], ask))
    cluster.kubectl(*wait, "--for=jsonpath={.status.phase}=Succeeded", "pod/client")
    assert cluster.kubectl("-n", namespace, "logs", "client").split() == ["hello", "api"]


def test_every_request_is_in_the_audit_log_with_who_and_what_but_without_its_body(
    cluster: Cluster, namespace: str
):
    name = f"audited-{uuid.uuid4().hex[:8]}"
    value = "not to be logged"
    cluster.kubectl("-n", namespace, "create", "configmap", name, f"--from-literal=k={value}")
    lines = (cluster.state.audit / "audit.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if f'"{name}"' in line]
    writes = [e for e in events if e["verb"] == "create" and e["stage"] == "ResponseComplete"]
    assert len(writes) == 1
    assert writes[0]["level"] == "Metadata"
    assert writes[0]["user"]["username"] == "kubernetes-admin"
    assert not any(value in line for line in lines)


def test_a_restarted_node_has_another_boot_id_an_empty_run_and_its_routes(cluster: Cluster):
    node = WORKERS[1]
    boot = f"{NODE_ROOT}/proc/sys/kernel/random/boot_id"
    before = in_node(cluster, node, "cat", boot)
    routes = set(in_node(cluster, node, "ip", "route").splitlines())
    in_node(cluster, node, "sh", "-c", "mkdir -p /var/run/cdi; touch /var/run/cdi/x /var/lib/kept")
    begin = time.time()
    kind_cluster.reboot(cluster, node)
    assert in_node(cluster, node, "cat", boot) != before
    assert in_node(cluster, node, "sh", "-c", "ls /var/run/cdi 2>/dev/null || true") == ""
    in_node(cluster, node, "rm", "/var/lib/kept")
    remote = {line for line in routes if " via " in line}
    assert remote <= set(in_node(cluster, node, "ip", "route").splitlines())
    started = in_node(cluster, node, "stat", "-c", "%Y", "/run/systemd/system")
    assert float(started) >= int(begin)


def test_up_of_a_cluster_that_is_up_changes_nothing(cluster: Cluster):
    record = json.loads(cluster.state.cluster_record.read_text())
    before = cluster.state.engine_record.read_text()
    again = lifecycle.up(
        cluster.state, workers=int(record["workers"]), preset=str(record["preset"])
    )
    assert again == cluster
    assert cluster.state.engine_record.read_text() == before
