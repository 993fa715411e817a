"""What kind and kubeadm are told, as a pure function of the wanted cluster and the machine.

Why it exists: each switch here answers one fact of the machine; together in one document they can
be read and tested without a cluster.

Must not know: files it does not name, processes. JSON is written, which every YAML reader takes.
"""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.kind import versions
from hack.kind.host import Host

AUDIT_FOLDER: Final = "/var/log/kubernetes/audit"
AUDIT_POLICY: Final = "/etc/kubernetes/audit-policy.json"
POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`image`: of the nodes; `own`: it is ours, without kind's network plugin and CoreDNS."""

    workers: int
    preset: str
    image: str
    own: bool

    @property
    def control_plane(self) -> str:
        return f"{versions.CLUSTER}-control-plane"

    @property
    def worker_names(self) -> list[str]:
        """kind's names: the first has no number."""
        name = f"{versions.CLUSTER}-worker"
        return [name if n == 1 else f"{name}{n}" for n in range(1, self.workers + 1)]


def render(
    wanted: Wanted, host: Host, *, audit: Path, mounts: Mapping[str, Sequence[object]]
) -> str:
    """kind's configuration. `audit`: folder of the host for policy and log; `mounts` by worker."""
    control_plane = {
        "role": "control-plane",
        "extraMounts": [
            {"hostPath": str(audit), "containerPath": AUDIT_FOLDER},
            {
                "hostPath": str(audit / "policy.json"),
                "containerPath": AUDIT_POLICY,
                "readOnly": True,
            },
        ],
    }
    workers = [{"role": "worker", "extraMounts": list(mounts[n])} for n in wanted.worker_names]
    document = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": _networking(wanted),
        "kubeadmConfigPatches": [json.dumps(patch) for patch in _patches(wanted, host)],
        "nodes": [control_plane, *workers],
    }
    return json.dumps(document, indent=1)


def _networking(wanted: Wanted) -> dict[str, object]:
    common: dict[str, object] = {
        "ipFamily": "ipv4",
        "apiServerAddress": "127.0.0.1",
        "podSubnet": versions.POD_SUBNET,
    }
    if wanted.own:
        common |= {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    return common


def _patches(wanted: Wanted, host: Host) -> list[dict[str, object]]:
    patches: list[dict[str, object]] = [{"kind": "ClusterConfiguration", "apiServer": _audit()}]
    kubelet: dict[str, object] = {}
    proxy: dict[str, object] = {}
    if host.cgroup_v1:
        kubelet |= {"failCgroupV1": False}
    if host.cgroup_v1 and wanted.own:
        kubelet |= {"cgroupDriver": "cgroupfs"}  # containerd in our image is set the same way
    if not host.may_raise_limits:
        kubelet |= {"oomScoreAdj": 0, "maxOpenFiles": 20000}
        proxy |= {"oomScoreAdj": 0}
    if wanted.own:
        # These sysctls belong to the machine's first network namespace, which our engine left.
        proxy |= {
            "conntrack": {
                "maxPerCore": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            }
        }
        # CoreDNS has no image here. Test pods use `dnsPolicy: Default`.
        skip = ["preflight", "addon/coredns"]
        patches.append({"kind": "InitConfiguration", "skipPhases": skip})
    for kind, fields in (("KubeletConfiguration", kubelet), ("KubeProxyConfiguration", proxy)):
        if fields:
            patches.append({"kind": kind, **fields})
    return patches


def _audit() -> dict[str, object]:
    log = f"{AUDIT_FOLDER}/audit.log"
    arguments = {"audit-policy-file": AUDIT_POLICY, "audit-log-path": log}
    volumes = (
        ("audit-policy", AUDIT_POLICY, "File", True),
        ("audit-log", AUDIT_FOLDER, "DirectoryOrCreate", False),
    )
    return {
        "extraArgs": [{"name": name, "value": value} for name, value in arguments.items()],
        "extraVolumes": [
            {"name": name, "hostPath": path, "mountPath": path, "pathType": kind, "readOnly": fixed}
            for name, path, kind, fixed in volumes
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """`address`: of the node; `pods`: the subnet that the controller manager gave it."""

    name: str
    address: ipaddress.IPv4Address
    pods: ipaddress.IPv4Network


def conflist(node: NodeNetwork) -> str:
    """Pods on a bridge of the node's own subnet; their addresses are not hidden from others."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": str(node.pods)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "tessera", "plugins": [bridge, portmap]})


def routes(node: NodeNetwork, everyone: Sequence[NodeNetwork]) -> str:
    """Lines for `ip -batch`: to the pods of every other node."""
    others = (other for other in everyone if other.name != node.name)
    return "".join(f"route replace {other.pods} via {other.address}\n" for other in others)
