"""One kind cluster: create, look at, restart a node of, delete.

Why it exists: kind creates the nodes; what our node image lacks (a network between pods) and what
tests need (readiness that is true) is done here.

Must not know: how binaries and images came about.
"""

import ipaddress
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hack.kind import config, gpus, versions
from hack.kind.config import NodeNetwork, Wanted
from hack.kind.engine import Engine
from hack.kind.host import Host
from hack.kind.paths import State
from hack.kind.shell import Failure, logged, output, step, succeeds

CNI_FILE = "/etc/cni/net.d/10-tessera.conflist"
ROUTES_FILE = "/etc/tessera/routes"
# Containers of pods do not end with systemd, so a stop always takes all the time it is given.
STOP_SECONDS = "2"
PLACE = 'mkdir -p "$(dirname "$0")" && cat > "$0.partial" && mv "$0.partial" "$0"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster of `engine`; `bin`: folder with kind and kubectl."""

    engine: Engine
    state: State
    bin: Path

    def env(self) -> dict[str, str]:
        """For any program that is to work with the cluster."""
        return {
            **self.engine.env(self.bin),
            "KUBECONFIG": str(self.state.kubeconfig),
            "TESSERA_KIND_GPUS": str(self.state.gpus),
            "TESSERA_KIND_AUDIT": str(self.state.audit / "audit.log"),
        }

    def argv(self, *command: str) -> list[str]:
        return [*self.engine.enter, *command]

    def kubectl(self, *arguments: str, timeout: float = 180) -> str:
        return output(self.argv("kubectl", *arguments), env=self.env(), timeout=timeout)

    def answers(self, *, timeout: float = 5) -> bool:
        """Whether the API server is ready, or gets ready within `timeout`."""
        deadline = time.monotonic() + timeout
        argv = self.argv("kubectl", "get", "--raw", "/readyz")
        while not succeeds(argv, env=self.env(), timeout=max(1, deadline - time.monotonic())):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True

    def nodes(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", "nodes", "-o", "json"))[
            "items"
        ]
        return items

    def containers(self) -> list[str]:
        """Names of the nodes' containers that run."""
        label = f"label=io.x-k8s.kind.cluster={versions.CLUSTER}"
        return self.engine.docker("ps", "--filter", label, "--format", "{{.Names}}").split()

    def require_node(self, name: str) -> None:
        if name not in (known := self.containers()):
            raise Failure(f"argument NODE: no running node {name!r}; there are {', '.join(known)}")


def create(cluster: Cluster, wanted: Wanted, host: Host) -> None:
    """A new cluster, complete: nodes Ready, pods reach each other, services are routed."""
    state = cluster.state
    with step("simulated GPUs"):
        gpus.create(state, wanted.worker_names, wanted.preset)
    shutil.rmtree(state.audit, ignore_errors=True)
    state.audit.mkdir(parents=True)
    (state.audit / "policy.json").write_text(json.dumps(config.POLICY))
    mounts = {name: gpus.NodeGpus.of(state, name).mounts() for name in wanted.worker_names}
    document = state.root / "kind.json"
    document.write_text(config.render(wanted, host, audit=state.audit, mounts=mounts))
    log = state.logs / "kind.log"
    log.unlink(missing_ok=True)
    with step(f"kind create cluster, {wanted.workers} workers"):
        kind = [
            "kind",
            "create",
            "cluster",
            "--name",
            versions.CLUSTER,
            "--image",
            wanted.image,
            "--config",
            str(document),
            "--kubeconfig",
            str(state.kubeconfig),
            "--retain",
        ]
        logged(cluster.argv(*kind), log, env=cluster.env())
    if wanted.own:
        with step("network between pods"):
            connect(cluster)
    with step("nodes and kube-proxy ready"):
        cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=150s")
        proxies = ("-n", "kube-system", "rollout", "status", "daemonset/kube-proxy")
        cluster.kubectl(*proxies, "--timeout=150s")


def connect(cluster: Cluster) -> None:
    """Give every node its part of the pods' network, and routes to the others' parts."""
    subnet = "--for=jsonpath={.spec.podCIDR}"
    cluster.kubectl("wait", subnet, "nodes", "--all", "--timeout=60s")
    networks = [network(node) for node in cluster.nodes()]
    for node in networks:
        place(cluster, node.name, ROUTES_FILE, config.routes(node, networks))
        cluster.engine.docker("exec", node.name, "ip", "-batch", ROUTES_FILE)
        place(cluster, node.name, CNI_FILE, config.conflist(node))


def network(node: dict[str, Any]) -> NodeNetwork:
    addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
    return NodeNetwork(
        name=node["metadata"]["name"],
        address=ipaddress.IPv4Address(addresses["InternalIP"]),
        pods=ipaddress.IPv4Network(node["spec"]["podCIDR"]),
    )


def place(cluster: Cluster, node: str, path: str, text: str) -> None:
    """Write a file in a node, whole or not at all."""
    cluster.engine.docker("exec", "-i", node, "sh", "-euc", PLACE, path, text=text)


def delete(cluster: Cluster) -> None:
    """Remove nodes and kubeconfig. Also of a cluster that was never complete."""
    kind = ["kind", "delete", "cluster", "--name", versions.CLUSTER]
    kubeconfig = ["--kubeconfig", str(cluster.state.kubeconfig)]
    output(cluster.argv(*kind, *kubeconfig), env=cluster.env(), timeout=180)


def load(cluster: Cluster, images: Sequence[str]) -> None:
    """Copy images from the engine to every node."""
    for image in images:
        if not cluster.engine.has_image(image):
            raise Failure(f"argument IMAGE: the engine has no {image!r}; build it first")
    kind = ["kind", "load", "docker-image", "--name", versions.CLUSTER, *images]
    with step(f"load of {', '.join(images)} to the nodes"):
        output(cluster.argv(*kind), env=cluster.env(), timeout=600)


def reboot(cluster: Cluster, node: str) -> None:
    """Restart the node as a machine would: processes end, /run is empty, GPUs are reset."""
    cluster.require_node(node)
    with step(f"restart of {node}"):
        cluster.engine.docker("stop", "-t", STOP_SECONDS, node)
        if gpus.NodeGpus.of(cluster.state, node).run.exists():
            gpus.reboot(cluster.state, node)
        since = datetime.now(UTC).replace(microsecond=0)
        cluster.engine.docker("start", node)
        await_heartbeat(cluster, node, since, timeout=120)


def await_heartbeat(cluster: Cluster, node: str, since: datetime, *, timeout: float) -> None:
    """Wait until the kubelet says Ready after `since`: the condition's value alone may be old."""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        if _heartbeat_within(cluster, node, since, left):
            return
        # The watch ended early: the API server itself is restarting. Nothing announces its return.
        time.sleep(0.5)
    hint = f"node-shell {node} -- journalctl -u kubelet"
    raise Failure(f"{node} was not Ready within {timeout:.0f} s; try `{hint}`")


def _heartbeat_within(cluster: Cluster, node: str, since: datetime, timeout: float) -> bool:
    ready = (
        '{range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{"\\n"}{end}'
    )
    argv = cluster.argv("kubectl", "get", "node", node, "--watch", "-o", f"jsonpath={ready}")
    with subprocess.Popen(
        argv,
        env=cluster.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as watch:
        alarm = threading.Timer(timeout, watch.kill)
        alarm.start()
        try:
            for line in watch.stdout or ():
                status, _, beat = line.strip().partition(" ")
                if status == "True" and datetime.fromisoformat(beat) > since:
                    return True
        finally:
            alarm.cancel()
            watch.kill()
    return False
