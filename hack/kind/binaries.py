"""Kubernetes, etcd, containerd, kind and helm, built from Go modules.

Why it exists: where no image and no release file can be downloaded, the module proxy still serves
the sources. One module per product, because their dependencies do not agree with each other.

Must not know: what the programs are used for. Each program is its own cache entry; its key is the
module's files, the Go version and the exact command, so a new helm does not rebuild Kubernetes,
and a build that was stopped goes on where it was.
"""

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hack.kind import cache, versions
from hack.kind.paths import HERE
from hack.kind.shell import Failure, logged, output, require, say, step

GO: Final = HERE / "go"
# A date and a commit that do not change: `kubectl version` wants both, and a build must be the
# same whenever it is made.
STAMP: Final = {
    "gitVersion": versions.KUBERNETES,
    "gitMajor": versions.KUBERNETES.removeprefix("v").split(".")[0],
    "gitMinor": versions.KUBERNETES.split(".")[1],
    "gitTreeState": "clean",
    "gitCommit": "0" * 40,
    "buildDate": "2026-11-01T00:00:00Z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`module`: folder under go/; `stamp`: linker variables and their values."""

    name: str
    module: str
    package: str
    stamp: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return GO / self.module

    def command(self, out: str) -> list[str]:
        flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in self.stamp)])
        return ["go", "build", "-trimpath", "-ldflags", flags, "-o", out, self.package]

    def key(self, go_version: str) -> str:
        files = [self.folder / "go.mod", self.folder / "go.sum"]
        return cache.key(go_version, self.command("out"), files=files)


def _kubernetes(name: str) -> Program:
    variables = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return Program(
        name=name,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        stamp=tuple((f"{v}.{field}", value) for v in variables for field, value in STAMP.items()),
    )


def _containerd(name: str) -> Program:
    root = "github.com/containerd/containerd/v2"
    return Program(
        name=name,
        module="containerd",
        package=f"{root}/cmd/{name}",
        stamp=((f"{root}/version.Version", versions.CONTAINERD),),
    )


# kube-apiserver first: it is the longest by far, and API-level tests need only it and etcd.
PROGRAMS: Final = (
    *map(
        _kubernetes,
        (
            "kube-apiserver",
            "kube-scheduler",
            "kube-controller-manager",
            "kubelet",
            "kubectl",
            "kube-proxy",
            "kubeadm",
        ),
    ),
    Program(name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3"),
    *map(_containerd, ("containerd", "containerd-shim-runc-v2", "ctr")),
    Program(name="kind", module="kind", package="sigs.k8s.io/kind"),
    Program(name="helm", module="helm", package="helm.sh/helm/v4/cmd/helm"),
)
# What works with a cluster from outside; all that is needed where node images can be pulled.
CLIENTS: Final = ("kubectl", "kind", "helm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """`path`: a folder with a link per program, fit for PATH; `entries`: what the links lead to."""

    path: Path
    entries: tuple[Path, ...]

    def __truediv__(self, name: str) -> Path:
        return self.path / name


def _chosen(names: tuple[str, ...]) -> list[Program]:
    known = {program.name: program for program in PROGRAMS}
    if unknown := [name for name in names if name not in known]:
        raise Failure(
            f"argument PROGRAM: no program {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return [known[name] for name in names or known]


def planned(*names: str) -> Binaries:
    """Where these programs (all, if none is named) are or will be; nothing is built."""
    require("go")
    version = output(["go", "env", "GOVERSION"]).strip()
    entries = [cache.entry(p.name, p.key(version)) for p in _chosen(names)]
    return Binaries(
        path=cache.entry("bin", cache.key([entry.name for entry in entries])),
        entries=tuple(entries),
    )


def ensure(*names: str) -> Binaries:
    """These programs, built if they are not in the cache."""
    plan = planned(*names)
    programs = dict(zip(plan.entries, _chosen(names), strict=True))
    missing = [entry for entry in plan.entries if not entry.is_dir()]
    if missing:
        _build_all({entry: programs[entry] for entry in missing})
    kind, _, content = plan.path.name.rpartition("-")
    cache.ensure(kind, content, partial(_link, plan.entries))
    return plan


def _build_all(missing: dict[Path, Program]) -> None:
    start = time.monotonic()
    say(f"building {len(missing)} programs; with Go's cache cold this takes up to half an hour")
    for number, (entry, program) in enumerate(missing.items(), start=1):
        kind, _, content = entry.name.rpartition("-")
        with step(f"  {program.name} ({number} of {len(missing)})"):
            cache.ensure(kind, content, partial(_build, program))
        say(f"  {time.monotonic() - start:.0f} s so far")


def _build(program: Program, out: Path) -> None:
    env = {**os.environ, "CGO_ENABLED": "0"}
    logged(program.command(str(out / program.name)), out / "build.log", env=env, cwd=program.folder)


def _link(entries: tuple[Path, ...], out: Path) -> None:
    for entry in entries:
        name = entry.name.rpartition("-")[0]
        (out / name).symlink_to(Path("..") / entry.name / name)


def link_folders(entries: tuple[Path, ...]) -> list[Path]:
    """Folders of links that lead to nothing but these entries."""
    folders = entries[0].parent.glob("bin-*")
    return [f for f in folders if all(link.resolve().parent in entries for link in f.iterdir())]


def module_files(folder: str, module: str) -> Path:
    """The unpacked sources of a module in Go's module cache, downloaded if need be."""
    go = ["go", "-C", str(GO / folder)]
    found = output([*go, "list", "-m", "-f", "{{.Dir}}", module], timeout=300).strip()
    if not found:
        output([*go, "mod", "download", module], timeout=600)
        found = output([*go, "list", "-m", "-f", "{{.Dir}}", module], timeout=300).strip()
    if not found:
        raise Failure(f"Go's module cache has no {module}; try `go mod download` in {GO / folder}")
    return Path(found)
