"""A kubelet reduced to plugin registration and DRA calls.

Not there: pods, the API server, and the wipe of slices when a driver is gone.
"""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import grpc

from hack.fakekubelet import calls, handshake
from hack.fakekubelet.calls import DEADLINE, VERSIONS, ClaimLike, ClaimResult, Refused

SCAN_SECONDS: Final = 0.02


@dataclass(slots=True, kw_only=True)
class Instance:
    """A plugin process; the connection is kept, as the kubelet keeps it.

    `told`: the plugin knows that it is registered; only then does it count.
    """

    info: handshake.PluginInfo
    registration: Path
    channel: grpc.Channel
    told: bool = False

    def connected(self) -> bool:
        # Asked of the socket: gRPC's own watch of a channel dies noisily when that is closed.
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.info.endpoint)) == 0


class FakeKubelet:
    """Scans `registrar_dir` from `start` to `stop`, or whenever `scan` is called.

    `known`: the versions that this kubelet speaks. `retries`: as from 1.36, a failed registration
    is tried again; before, only for a new socket. `lost_notifications`: so many registrations break
    off before the plugin is told, which is how a node lost its driver for good up to 1.35.
    """

    def __init__(
        self,
        registrar_dir: Path,
        *,
        known: Sequence[str] = tuple(VERSIONS),
        retries: bool = False,
        lost_notifications: int = 0,
    ) -> None:
        self._dir = registrar_dir
        self._known = known
        self._retries = retries
        self._lost = lost_notifications
        self._changed = threading.Condition()
        self._seen: dict[Path, tuple[int, int]] = {}
        self._instances: list[Instance] = []
        self._refusals: list[str] = []
        self._registrations = 0
        self._stop = threading.Event()
        self._scanner = threading.Thread(target=self._run, name="fake-kubelet", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._scanner.start()

    def stop(self) -> None:
        """As a killed kubelet: connections close, the plugins are told nothing."""
        self._stop.set()
        if self._scanner.is_alive():
            self._scanner.join()
        with self._changed:
            for instance in self._instances:
                instance.channel.close()
            self._instances.clear()

    @property
    def refusals(self) -> tuple[str, ...]:
        """What plugins were refused for, oldest first."""
        with self._changed:
            return tuple(self._refusals)

    def registered(self, driver: str) -> tuple[handshake.PluginInfo, ...]:
        """Instances of the driver, in the order in which they registered."""
        with self._changed:
            return tuple(i.info for i in self._of(driver))

    def wait_registered(self, driver: str, *, instances: int = 1, timeout: float = 10.0) -> bool:
        """Exactly so many instances, 0 included."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._of(driver)) == instances, timeout)

    @property
    def registrations(self) -> int:
        """How many there have been, of all drivers."""
        with self._changed:
            return self._registrations

    def wait_registrations(self, count: int, *, timeout: float = 10.0) -> bool:
        """A killed plugin leaves its sockets: only a further registration says that one is back."""
        with self._changed:
            return self._changed.wait_for(lambda: self._registrations >= count, timeout)

    def prepare(
        self, driver: str, claims: Sequence[ClaimLike], *, timeout: float = DEADLINE
    ) -> dict[str, ClaimResult]:
        instance = self._instance(driver)
        return calls.prepare(instance.channel, instance.info.version, claims, timeout=timeout)

    def unprepare(
        self, driver: str, claims: Sequence[ClaimLike], *, timeout: float = DEADLINE
    ) -> dict[str, ClaimResult]:
        instance = self._instance(driver)
        return calls.unprepare(instance.channel, instance.info.version, claims, timeout=timeout)

    def health(
        self, driver: str, *, version: str = "v1.DRAResourceHealth", timeout: float = DEADLINE
    ) -> Iterator[dict[str, tuple[int, str]]]:
        """State and message of each device, complete: now, and whenever the plugin says more."""
        instance = self._instance(driver)
        for devices in calls.watch_health(instance.channel, version, timeout=timeout):
            yield {d.device.device_name: (d.health, d.message) for d in devices}

    def scan(self) -> None:
        """One round of the reconcile loop: gone and replaced sockets first, then new ones."""
        now = _sockets(self._dir)
        for path in [p for p, inode in self._seen.items() if now.get(p) != inode]:
            self._forget(path)
        for path, inode in now.items():
            if path not in self._seen and (self._register(path) or not self._retries):
                self._seen[path] = inode

    def _run(self) -> None:
        while not self._stop.wait(SCAN_SECONDS):
            self.scan()

    def _instance(self, driver: str) -> Instance:
        """The newest that is connected; if none is, the newest."""
        with self._changed:
            mine = self._of(driver)
        if not mine:
            raise Refused(f"DRA driver {driver} is not registered")
        return next((i for i in reversed(mine) if i.connected()), mine[-1])

    def _of(self, driver: str) -> list[Instance]:
        return [i for i in self._instances if i.told and i.info.driver == driver]

    def _register(self, path: Path) -> bool:
        try:
            info = handshake.ask(path, self._known)
            instance = self._add(info, path)
        except handshake.Rejected as refusal:
            return self._refuse(path, str(refusal))
        if self._lost > 0:
            self._lost -= 1
            self._drop(instance)
            return self._note("the registration broke off before the plugin was told")
        try:
            handshake.notify(path, "")
        except handshake.Rejected as failure:
            self._drop(instance)
            return self._note(str(failure))
        with self._changed:
            instance.told = True
            self._registrations += 1
            self._changed.notify_all()
        return True

    def _add(self, info: handshake.PluginInfo, path: Path) -> Instance:
        with self._changed:
            if any(
                i.info.driver == info.driver and i.info.endpoint == info.endpoint
                for i in self._instances
            ):
                raise handshake.Rejected(f"endpoint {info.endpoint} already registered")
            instance = Instance(info=info, registration=path, channel=calls.dial(info.endpoint))
            self._instances.append(instance)
        return instance

    def _refuse(self, path: Path, reason: str) -> bool:
        try:
            handshake.notify(path, reason)
        except handshake.Rejected as failure:
            self._note(str(failure))
        return self._note(reason)

    def _note(self, reason: str) -> bool:
        with self._changed:
            self._refusals.append(reason)
            self._changed.notify_all()
        return False

    def _forget(self, path: Path) -> None:
        del self._seen[path]
        for instance in [i for i in self._instances if i.registration == path]:
            self._drop(instance)

    def _drop(self, instance: Instance) -> None:
        with self._changed:
            self._instances.remove(instance)
            self._changed.notify_all()
        instance.channel.close()


def _sockets(directory: Path) -> dict[Path, tuple[int, int]]:
    """Path to what tells a new socket of the same name from the old one."""
    found = {}
    for path in sorted(directory.iterdir()):
        try:
            info = path.lstat()
        except FileNotFoundError:  # gone between listing and looking, as in any live directory
            continue
        if stat.S_ISSOCK(info.st_mode) and not path.name.startswith("."):
            found[path] = (info.st_ino, info.st_mtime_ns)
    return found
