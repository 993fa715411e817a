"""The servers that a contract is checked against: the fake one, and a real one if there is one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driver.core.errors import KubeNotFound
from driver.kube.client import Client
from driver.kube.login import login
from driver.ports.kube import JsonObject, Resource
from hack.fakeapi import ApiServer, Cluster

REAL_SERVER = "TESSERA_TEST_KUBECONFIG"


@dataclass
class Bench:
    """A client, and names that nothing else on the server has. What is `made` is removed."""

    api: Client
    kubeconfig: str
    cluster: Cluster | None = None  # inside the fake one
    prefix: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}")
    made: list[tuple[Resource, str, str]] = field(default_factory=list)

    def name(self, suffix: str) -> str:
        return f"{self.prefix}-{suffix}"

    def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        stored = self.api.create(resource, obj)
        metadata = stored["metadata"]
        self.made.append((resource, metadata["name"], metadata.get("namespace", "")))
        return stored

    def client(self, **options: object) -> Client:
        configuration = login(kubeconfig=self.kubeconfig)
        return Client(configuration, user_agent="tessera-test", **options)  # type: ignore[arg-type]

    def clean(self) -> None:
        for resource, name, namespace in self.made:
            with suppress(KubeNotFound):  # the test removed it
                self.api.delete(resource, name, namespace=namespace)


@contextmanager
def bench(kind: str, folder: Path) -> Iterator[Bench]:
    if kind == "real":
        kubeconfig = os.environ.get(REAL_SERVER, "")
        if not kubeconfig:
            pytest.skip(f"{REAL_SERVER} is not set: no real API server to check against")
        yield from _open(kubeconfig, None)
        return
    with ApiServer(bookmark_every=0.5) as server:
        yield from _open(str(server.write_kubeconfig(folder / "kubeconfig")), server.cluster)


def _open(kubeconfig: str, cluster: Cluster | None) -> Iterator[Bench]:
    client = Client(login(kubeconfig=kubeconfig), user_agent="tessera-test")
    opened = Bench(api=client, kubeconfig=kubeconfig, cluster=cluster)
    try:
        yield opened
    finally:
        opened.clean()
        client.close()
