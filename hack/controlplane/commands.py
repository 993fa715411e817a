"""The command line of each component: `(ports, files) -> argv`.

Why it exists: the flags decide what a benchmark measures, so they stand in one place, each with its
reason. Must not know processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.controlplane.pki import Pki

PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
LOOPBACK: Final = "127.0.0.1"
RATE: Final = ("--kube-api-qps=5000", "--kube-api-burst=5000")
"""The default of 50 requests a second allows 13 pods a second, fewer than are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    etcd: int
    peer: int
    apiserver: int
    controllers: int
    scheduler: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`folder`: what the components write."""

    ports: Ports
    pki: Pki
    folder: Path

    def etcd(self) -> list[str]:
        client, peer = (f"http://{LOOPBACK}:{p}" for p in (self.ports.etcd, self.ports.peer))
        return [
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # Nothing here must survive; the disk's time is not what is measured.
            "--unsafe-no-fsync",
        ]

    def apiserver(self) -> list[str]:
        return [
            "kube-apiserver",
            f"--etcd-servers=http://{LOOPBACK}:{self.ports.etcd}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self.ports.apiserver}",
            # The Service `kubernetes` may not lead to loopback, and nobody uses it.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--client-ca-file={self.pki.authority}",
            f"--tls-cert-file={self.pki.certificate}",
            f"--tls-private-key-file={self.pki.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.pki.signing_key}",
            f"--service-account-signing-key-file={self.pki.signing_key}",
            "--authorization-mode=RBAC",
            # It taints every new Node until the controller that is off below sees it ready.
            "--disable-admission-plugins=TaintNodesByCondition",
            f"--cert-dir={self.folder / 'apiserver'}",
        ]

    def controllers(self) -> list[str]:
        return [
            "kube-controller-manager",
            *self._client("controller-manager", self.ports.controllers),
            *RATE,
            # Nodes without a kubelet would be marked as dead.
            "--controllers=*,-node-lifecycle-controller",
            "--use-service-account-credentials=true",
            f"--root-ca-file={self.pki.authority}",
            f"--service-account-private-key-file={self.pki.signing_key}",
        ]

    def scheduler(self) -> list[str]:
        return ["kube-scheduler", *self._client("scheduler", self.ports.scheduler), *RATE]

    def _client(self, name: str, port: int) -> list[str]:
        own = self.pki.kubeconfig(name)
        return [
            f"--kubeconfig={own}",
            # Without these two, health and metrics answer nobody.
            f"--authentication-kubeconfig={own}",
            f"--authorization-kubeconfig={own}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            "--leader-elect=false",
        ]
