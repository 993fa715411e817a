"""Certificates and kubeconfigs of one control plane.

Why it exists: the API server knows users by client certificate alone, and each component is a user
of its own, as in a real cluster. Must not know the processes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

USERS: Final = {
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", "components"),
    "controller-manager": ("system:kube-controller-manager", "components"),
}
"""Of each kubeconfig, the user and its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """Where the files are. `signing_key` signs the tokens of service accounts."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "apiserver.crt"

    @property
    def key(self) -> Path:
        return self.folder / "apiserver.key"

    @property
    def signing_key(self) -> Path:
        return self.folder / "service-accounts.key"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.conf"


def create(folder: Path, *, port: int) -> Pki:
    """All files for an API server on this port of loopback."""
    pki = Pki(folder=folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(pki.authority)
    server = authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc")
    server.cert_chain_pems[0].write_to_path(pki.certificate)
    server.private_key_pem.write_to_path(pki.key)
    signer = authority.issue_cert("service-accounts")
    signer.private_key_pem.write_to_path(pki.signing_key)
    for name, (user, group) in USERS.items():
        client = authority.issue_cert(f"{name}.client", common_name=user, organization_name=group)
        client.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
        pki.kubeconfig(name).write_text(json.dumps(_kubeconfig(pki, folder / f"{name}.pem", port)))
    return pki


def _kubeconfig(pki: Pki, credential: Path, port: int) -> dict[str, object]:
    """JSON is YAML too. Key and certificate are in one file, which every client accepts."""
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(pki.authority)}
    user = {"client-certificate": str(credential), "client-key": str(credential)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bare", "cluster": server}],
        "users": [{"name": "bare", "user": user}],
        "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
        "current-context": "bare",
    }
