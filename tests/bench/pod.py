"""The testbed's plugin as it runs in a pod: the pod's own credentials, and TLS to the API server.

Why it exists: memory is what a node pays for a pod, and a kubeconfig costs 8 MiB that no pod pays.
The place of the credentials is fixed, so the process gets a mount namespace of its own.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trustme

from hack.fakeapi import ApiServer
from hack.testbed import Testbed

_IN_POD: Final = """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""


class PodTestbed(Testbed):
    def __init__(self, folder: Path, preset: str | Sequence[str]) -> None:
        super().__init__(folder, preset)
        authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "token").write_text("token")
        authority.cert_pem.write_to_path(str(self.account / "ca.crt"))
        self.api.stop()
        self.api = ApiServer(self.api.cluster, tls=context).start()

    def command(self) -> list[str]:
        words = [w for w in super().command() if not w.startswith("--kubeconfig")]
        return ["unshare", "--mount", "sh", "-c", _IN_POD, str(self.account), *words]

    def environment(self) -> dict[str, str]:
        url = urlsplit(self.api.url)
        found = {k: v for k, v in super().environment().items() if k != "KUBECONFIG"}
        server = {
            "KUBERNETES_SERVICE_HOST": str(url.hostname),
            "KUBERNETES_SERVICE_PORT": str(url.port),
        }
        return found | server
