"""Servers and clients for the tests of the Kubernetes adapter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.reflector import Reflector
from driver.kube.transport import Timeouts
from hack.fakeapi import ApiServer
from tests.fakes.apiserver.running import Connect, Run, Running
from tests.fakes.apiserver.servers import Bench, bench


@pytest.fixture(params=["fake", "real"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """For what must hold on both."""
    with bench(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def fake() -> Iterator[ApiServer]:
    with ApiServer(bookmark_every=0.2) as started:
        yield started


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """A client of a fake server, by a kubeconfig as users have it. Time-outs of a second."""
    with ExitStack() as opened:

        def to(server: ApiServer, **options: object) -> Client:
            path = server.write_kubeconfig(tmp_path / f"kubeconfig-{id(server)}")
            options.setdefault("timeouts", Timeouts(connect=1.0, read=1.0))
            client = Client(login(kubeconfig=str(path)), user_agent="tessera-test", **options)  # type: ignore[arg-type]
            opened.callback(client.close)
            return client

        yield to


@pytest.fixture
def api(fake: ApiServer, connect: Connect) -> Client:
    return connect(fake)


@pytest.fixture
def run() -> Iterator[Run]:
    started: list[Running] = []

    def start(reflector: Reflector) -> Running:
        started.append(Running(reflector))
        return started[-1]

    yield start
    for running in started:
        running.end()
