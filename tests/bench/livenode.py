"""A node of a real control plane: the real plugin on eight simulated H100, and a kubelet's part.

Why it exists: what `hack.testbed` does with a stand-in for the API server, here with the real one.
The plugin is a process of its own; the kubelet registers it and prepares claims, and has no pods.
Needs root, for device nodes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hack.controlplane.plane import free_ports
from hack.fakekubelet import Claim, FakeKubelet
from hack.kind.shell import tail
from hack.simnvml import driverroot
from hack.simnvml.kit import Machine
from hack.simnvml.kmsg import KernelLog, make as make_log

REPO: Final = Path(__file__).resolve().parents[2]
DRIVER: Final = "gpu.tessera.dev"
PRESET: Final = "dgx-h100"


class LiveNode:
    """Its name gives its GPUs their identities. Short paths: those of sockets have 107 bytes."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        folder = Path(tempfile.mkdtemp(prefix="tsr-"))
        self._stack.callback(shutil.rmtree, folder)
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._log = folder / "plugin.log"
        (self._port,) = free_ports(1)
        for each in ("plugins", "registry", "cdi"):
            (folder / each).mkdir()
        self._machine = Machine.create(folder / "run", PRESET, seed=name)
        self._stack.callback(self._machine.close)
        driverroot.render(self._machine, folder / "root", nodes=True)
        self._kernel = KernelLog(make_log(folder / "run"))
        self._stack.callback(self._kernel.close)
        self._kubelet = FakeKubelet(folder / "registry")
        self._kubelet.start()
        self._stack.callback(self._kubelet.stop)
        self._stack.callback(self.stop)

    def start(self) -> None:
        """Returns when the plugin is registered. TimeoutError shows the end of its log."""
        registrations = self._kubelet.registrations
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), cwd=REPO, stdout=log, stderr=log, env=self._environment()
            )
        if not self._kubelet.wait_registrations(registrations + 1, timeout=60):
            raise TimeoutError(f"the plugin did not register in 60 s\n{tail(self._log)}")

    def stop(self) -> None:
        """Killed: nothing that it would still do at its end is wanted."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def forget(self) -> None:
        """The evidence and the place in the kernel's log: as on a new node."""
        for name in ("evidence.json", "kmsg.json"):
            (self._folder / "plugins" / DRIVER / name).unlink(missing_ok=True)

    def kmsg(self, text: str) -> None:
        """One record of the kernel's log. Only a plugin that runs hears it."""
        self._kernel.write(text)

    def prepare(self, claim: Claim) -> None:
        self._done(self._kubelet.prepare(DRIVER, [claim])[claim.uid].error)

    def unprepare(self, claim: Claim) -> None:
        self._done(self._kubelet.unprepare(DRIVER, [claim])[claim.uid].error)

    def metric(self, name: str) -> dict[str, float]:
        """The samples of one metric, by what stands between the braces."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
            return samples(name, answer.read().decode())

    def log_end(self) -> str:
        return tail(self._log)

    def _done(self, error: str) -> None:
        if error:
            raise RuntimeError(f"{error}\n{tail(self._log)}")

    def _command(self) -> list[str]:
        folder = self._folder
        flags = {
            "node-name": self.name,
            "kubeconfig": self._kubeconfig,
            "kubelet-plugins-dir": folder / "plugins",
            "kubelet-registry-dir": folder / "registry",
            "cdi-dir": folder / "cdi",
            "driver-root": folder / "root",
            "proc-root": folder / "root" / "proc",
            "sys-root": folder / "root" / "sys",
            "kmsg-path": folder / "run" / "kmsg",
            "required-libraries": "libnvidia-ml.so.1",
            "http-address": f"127.0.0.1:{self._port}",
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        return [sys.executable, "-m", "driver", "plugin", *words]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "SIMNVML_STATE": str(self._machine.path), "PYTHONPATH": str(REPO)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def samples(name: str, text: str) -> dict[str, float]:
    """`name{labels} value` of Prometheus' text, by labels."""
    found = {}
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            labels, _, value = line.removeprefix(f"{name}{{").rpartition("} ")
            found[labels] = float(value)
    return found
