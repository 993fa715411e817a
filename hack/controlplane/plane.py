"""The control plane as one `with` block: up in a few seconds, gone afterwards.

    with ControlPlane.start() as plane:
        client = Client(login(kubeconfig=str(plane.kubeconfig)), user_agent="bench")
        spent = plane.scheduler.cpu_seconds()

Programs come from `hack.kind`, which builds what its cache does not have.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hack.controlplane import pki
from hack.controlplane.commands import LOOPBACK, PROGRAMS, Plan, Ports
from hack.controlplane.component import Component, keep_logs
from hack.kind import binaries
from hack.kind.paths import REPO

LOGS: Final = REPO / "build" / "controlplane"
"""Where the logs of a plane that failed are left."""
PATIENCE: Final = 60.0
"""Seconds for one component; a second or two is usual, but machines are shared."""


class ControlPlane:
    """Made by `start`. `kubeconfig` is an administrator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._components: dict[str, Component] = {}
        self._stack.callback(shutil.rmtree, folder)

    @classmethod
    def start(cls) -> Self:
        """Failure says which component was not ready, and what it logged."""
        programs = binaries.ensure(*PROGRAMS).path
        plane = cls(Path(tempfile.mkdtemp(prefix="tessera-plane-")))
        try:
            plane._start(programs)
        except BaseException:
            plane.close(failed=True)
            raise
        return plane

    @property
    def kubeconfig(self) -> Path:
        return pki.Pki(folder=self.folder).kubeconfig("admin")

    @property
    def scheduler(self) -> Component:
        return self._components["kube-scheduler"]

    def close(self, *, failed: bool = False) -> None:
        """Clients first, storage last. After a failure the logs are kept."""
        if failed:
            keep_logs(self.folder, LOGS)
        self._stack.close()

    def _start(self, programs: Path) -> None:
        ports = Ports(**dict(zip(Ports.__slots__, free_ports(len(Ports.__slots__)), strict=True)))
        plan = Plan(
            ports=ports, pki=pki.create(self.folder, port=ports.apiserver), folder=self.folder
        )
        # Health is open to everybody; each waits for what the component itself needs.
        self._run(programs, plan.etcd, f"http://{LOOPBACK}:{ports.etcd}/health")
        self._run(programs, plan.apiserver, f"https://{LOOPBACK}:{ports.apiserver}/readyz")
        self._run(programs, plan.controllers, f"https://{LOOPBACK}:{ports.controllers}/healthz")
        self._run(programs, plan.scheduler, f"https://{LOOPBACK}:{ports.scheduler}/readyz")

    def _run(self, programs: Path, command: Callable[[], list[str]], health: str) -> None:
        argv = command()
        component = Component(argv, binaries=programs, log=self.folder / f"{argv[0]}.log")
        self._stack.callback(component.stop)
        self._components[component.name] = component
        component.await_ready(health, timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(failed=error is not None)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago; held together, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]
