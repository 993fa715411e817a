"""Publishers at an API server of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.core.choices import DEFAULT, Choices
from driver.core.snapshot import GpuFacts
from driver.kube.client import Client
from driver.kube.login import login
from hack.fakeapi import ApiServer
from tests.plugin.publishing import ONE_GPU, PROFILES, Bench, Make
from tests.plugin.stubs import NODE


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Bench] = []
    with ApiServer() as server:
        server.cluster.create("nodes", {"metadata": {"name": NODE}})
        for kind in (*PROFILES, "gpu"):
            server.cluster.create("deviceclasses", {"metadata": {"name": kind}, "spec": {}})
        client = Client(
            login(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig"))),
            user_agent="test",
        )

        def bench(*gpus: GpuFacts, choices: Choices = DEFAULT) -> Bench:
            made.append(Bench(server, client, *(gpus or ONE_GPU), choices=choices))
            made[-1].look()
            return made[-1]

        yield bench
        for each in made:
            each.supervisor.end()
            assert each.supervisor.join(10) == []
        client.close()
