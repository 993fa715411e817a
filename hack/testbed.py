"""A node in a folder: simulated GPUs and driver root, API server, kubelet, and the real plugin.

The plugin runs as a process of its own, with the real NVML binding, gRPC over real sockets and real
files; what stands in are the API server, the scheduler and the kubelet. The demonstration, the
benchmarks and integration tests share it. Needs root, for device nodes.

    with Testbed.make("h100x2") as bed:
        bed.start_plugin()
        claim = bed.claim("a")
        bed.kubelet.prepare(DRIVER, [claim])
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hack.fakeapi import ApiServer
from hack.fakeapi.scheduler import Scheduler
from hack.fakekubelet import Claim, FakeKubelet
from hack.simnvml import driverroot
from hack.simnvml.kit import Machine
from hack.simnvml.kmsg import KERNEL, KernelLog, make as make_log

REPO: Final = Path(__file__).resolve().parent.parent
DRIVER: Final = "gpu.tessera.dev"
NODE: Final = "node-1"
CLASS: Final = DRIVER


class Testbed:
    """One node. `folder` must be short: the sockets below it have 107 bytes."""

    __test__ = False  # pytest: no test class

    def __init__(self, folder: Path, preset: str | Sequence[str]) -> None:
        if os.geteuid() != 0:
            raise PermissionError("the simulated node needs root, to make device nodes")
        self.folder = folder
        self.plugins = folder / "plugins"
        self.registry = folder / "registry"
        self.cdi = folder / "cdi"
        self.root = folder / "root"
        self.log = folder / "plugin.log"
        for each in (self.plugins, self.registry, self.cdi):
            each.mkdir()
        self.machine = Machine.create(folder / "run", preset, seed=NODE)
        driverroot.render(self.machine, self.root, nodes=True)
        self._kernel = KernelLog(make_log(folder / "run"))
        self.api = ApiServer().start()
        self.api.write_kubeconfig(folder / "kubeconfig")
        self.api.cluster.create("nodes", {"metadata": {"name": NODE}})
        self.api.cluster.create("deviceclasses", {"metadata": {"name": CLASS}, "spec": {}})
        self._classes: dict[str, Callable[[str, dict[str, Any]], bool]] = {CLASS: _whole_gpu}
        self.scheduler = Scheduler(self.api.cluster, self._classes)
        self.kubelet = FakeKubelet(self.registry)
        self.kubelet.start()
        self.process: subprocess.Popen[bytes] | None = None
        self._registrations = 0

    @classmethod
    def make(cls, preset: str | Sequence[str]) -> Self:
        """In a fresh folder, removed at the end."""
        return cls(Path(tempfile.mkdtemp(prefix="tsr-")), preset)

    @property
    def ledger(self) -> Path:
        return self.plugins / DRIVER / "ledger"

    def start_plugin(self, *flags: str, wait: bool = True) -> None:
        """Start it and, with `wait`, return when it is registered and has published."""
        self._registrations = self.kubelet.registrations
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command(), *flags], cwd=REPO, stdout=log, stderr=log, env=self.environment()
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """TimeoutError shows the end of the plugin's log."""
        try:
            self.api.requests.wait(lambda _: self.complete(), timeout=30)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.log_end()}") from None
        if not self.kubelet.wait_registrations(self._registrations + 1, timeout=30):
            raise TimeoutError(f"the plugin did not register in 30 s\n{self.log_end()}")

    def command(self) -> list[str]:
        paths = {
            "node-name": NODE,
            "kubeconfig": self.folder / "kubeconfig",
            "kubelet-plugins-dir": self.plugins,
            "kubelet-registry-dir": self.registry,
            "cdi-dir": self.cdi,
            "driver-root": self.root,
            "proc-root": self.root / "proc",
            "sys-root": self.root / "sys",
            "kmsg-path": self.folder / "run" / "kmsg",
            "http-address": "",
        }
        flags = [f"--{name}={value}" for name, value in paths.items()]
        return [sys.executable, "-m", "driver", "plugin", *flags]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "SIMNVML_STATE": str(self.machine.path), "PYTHONPATH": str(REPO)}

    def stop_plugin(self, number: int = signal.SIGTERM) -> int:
        """The exit code; it has a minute."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def complete(self) -> bool:
        """Whether the node's pool is there with all its slices, as a scheduler asks."""
        slices = self.slices()
        pools = [s["spec"]["pool"] for s in slices]
        one_generation = len({p["generation"] for p in pools}) == 1
        return one_generation and all(p["resourceSliceCount"] == len(pools) for p in pools)

    def slices(self) -> list[dict[str, Any]]:
        """The plugin's."""
        found = self.api.cluster.list("resourceslices")[0]
        return [each for each in found if each["spec"]["driver"] == DRIVER]

    def claim(self, name: str, *, count: int = 1, profile: str = "") -> Claim:
        """Make a claim and allocate it; Unschedulable where nothing is free."""
        self.create_claim(name, count=count, profile=profile)
        return self.allocate(name)

    def create_claim(self, name: str, *, count: int = 1, profile: str = "") -> Claim:
        """For whole GPUs, or partitions of a profile. Not allocated yet."""
        chosen = f"mig-{profile}" if profile else CLASS
        if chosen not in self._classes:
            self._classes[chosen] = partial(_partition, profile)
            self.api.cluster.create("deviceclasses", {"metadata": {"name": chosen}, "spec": {}})
        request = {"name": "gpu", "exactly": {"deviceClassName": chosen, "count": count}}
        made = self.api.cluster.create(
            "resourceclaims",
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        return Claim(namespace="default", name=name, uid=made["metadata"]["uid"])

    def allocate(self, name: str) -> Claim:
        made = self.scheduler.allocate(name)
        return Claim(namespace="default", name=name, uid=made["metadata"]["uid"])

    def end_claim(self, claim: Claim) -> None:
        """What happens after the last pod: unprepare, release, delete."""
        answer = self.kubelet.unprepare(DRIVER, [claim])[claim.uid]
        if answer.error:
            raise RuntimeError(answer.error)
        self.scheduler.release(claim.name)
        self.api.cluster.delete("resourceclaims", claim.name, namespace="default")

    def kmsg(self, text: str, *, facility: int = KERNEL) -> None:
        """One record of the kernel's log. Only a plugin that runs hears it."""
        self._kernel.write(text, facility=facility)

    def log_end(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text().splitlines()[-lines:])

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.kubelet.stop()
        self.api.stop()
        self.machine.close()
        self._kernel.close()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def ready(port: int) -> tuple[bool, str]:
    """What /readyz on this port answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return True, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return False, error.read().decode()


def _whole_gpu(driver: str, device: dict[str, Any]) -> bool:
    kind = (device.get("attributes") or {}).get("type") or {}
    return driver == DRIVER and kind.get("string") == "gpu"


def _partition(profile: str, driver: str, device: dict[str, Any]) -> bool:
    own = (device.get("attributes") or {}).get("profile") or {}
    return driver == DRIVER and own.get("string") == profile
