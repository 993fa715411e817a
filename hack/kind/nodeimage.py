"""The node image: Debian, kind's own files, our binaries and the control plane's images.

Why it exists: it is what `kindest/node` is, made where that cannot be pulled.

Must not know: engines and clusters; the result is an archive. Its key covers the binaries, the
Debian tree, what this machine needs switched, and the sources of the steps.
"""

import json
import shutil
from pathlib import Path
from typing import Final

from hack.kind import cache, components, debian, versions
from hack.kind.archive import ImageConfig, write_image
from hack.kind.binaries import Binaries, module_files
from hack.kind.host import Host
from hack.kind.paths import HERE
from hack.kind.shell import Failure, logged, output, require, step

NAME: Final = "tessera-node"
PACKAGES: Final = (
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "curl",
    "dbus",
    "ethtool",
    "hostname",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "libseccomp2",
    "mount",
    "nftables",
    "procps",
    "runc",
    "socat",
    "systemd-sysv",
    "tar",
    "util-linux",
)
PROGRAMS: Final = {
    "usr/local/bin": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "usr/bin": ("kubeadm", "kubelet", "kubectl"),
}
PLUGINS: Final = ("bridge", "host-local", "loopback", "portmap")
# Units that a container has no use for, as in kind's own image recipe.
UNWANTED_UNITS: Final = (
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
)
# kind applies a storage manifest after every creation; this one does nothing.
NO_STORAGE: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "no-storage", "namespace": "kube-system"},
}


def key(binaries: Binaries, host: Host) -> str:
    modules = (Path(m.__file__ or "") for m in (components, debian))
    files = [p for p in (HERE / "files").iterdir() if p.is_file()]
    return cache.key(
        [entry.name for entry in binaries.entries if not entry.name.startswith("helm-")],
        debian.tree_key(PACKAGES),
        [host.cgroup_v1, host.may_raise_limits],
        files=[Path(__file__), HERE / "archive.py", *modules, *files],
    )


def ensure(binaries: Binaries, host: Host) -> tuple[str, Path]:
    """Name and archive of the node image."""
    content = key(binaries, host)
    name = f"{NAME}:{content}"

    def build(out: Path) -> None:
        require("chroot", "gcc", "tar")
        with step("node image"):
            _build(binaries, host, name, out)

    return name, cache.ensure(NAME, content, build) / "image.tar"


def _build(binaries: Binaries, host: Host, name: str, out: Path) -> None:
    tree = out / "tree"
    debian.unpack_tree(PACKAGES, tree, out / "tar.log")
    _kind_files(tree, module_files("kind", "sigs.k8s.io/kind") / "images/base/files")
    _programs(tree, binaries)
    containerd_settings(tree / "etc/containerd/config.toml", host, components.image_names(binaries))
    _base_spec(tree / "etc/containerd/cri-base.json", binaries)
    _units(tree, out / "systemctl.log")
    with step("  images of the control plane"):
        archives = components.write_images(binaries, tree, out / "images")
        store = tree / "var/lib/containerd"
        components.store(binaries, archives, store, out / "import")
    with step("  archive"):
        config = ImageConfig(
            entrypoint=("/usr/local/bin/entrypoint", "/sbin/init"),
            env=("container=docker",),
            stop_signal="SIGRTMIN+3",
        )
        write_image(out / "image.tar", name, tree, config)
    for folder in (tree, out / "images"):
        shutil.rmtree(folder)


def _kind_files(tree: Path, files: Path) -> None:
    """Copy from Go's module cache, where every file is read-only and none is executable."""
    for source in sorted(p for p in files.rglob("*") if p.is_file()):
        relative = source.relative_to(files)
        target = tree / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        program = relative.parts[0] == "usr" or relative.parts[:2] == ("kind", "bin")
        target.chmod(0o755 if program else 0o644)
    (tree / "kind/version").write_text(versions.KUBERNETES + "\n")
    manifests = tree / "kind/manifests"
    manifests.mkdir()
    (manifests / "default-storage.yaml").write_text(json.dumps(NO_STORAGE))


def _programs(tree: Path, binaries: Binaries) -> None:
    for folder, names in PROGRAMS.items():
        for name in names:
            shutil.copy(binaries / name, tree / folder / name)
    plugins = tree / "opt/cni/bin"
    plugins.mkdir(parents=True)
    for name in PLUGINS:
        shutil.copy(tree / "usr/lib/cni" / name, plugins / name)
    for folder in ("etc/cni/net.d", "etc/kubernetes/manifests", "etc/tessera", "etc/cdi"):
        (tree / folder).mkdir(parents=True, exist_ok=True)


def containerd_settings(path: Path, host: Host, images: dict[str, str]) -> None:
    """Set the pause image that is there, and what this machine needs otherwise than kind's file."""
    text = path.read_text()
    changes = {
        'sandbox_image = "registry.k8s.io/pause:3.10"': f'sandbox_image = "{images["pause"]}"'
    }
    if host.cgroup_v1:
        changes["SystemdCgroup = true"] = "SystemdCgroup = false"
    if not host.may_raise_limits:
        changes["restrict_oom_score_adj = false"] = "restrict_oom_score_adj = true"
    for old, new in changes.items():
        if old not in text:
            raise Failure(f"kind's containerd configuration has no `{old}` any more; see {path}")
        text = text.replace(old, new)
    path.write_text(text)


def _base_spec(path: Path, binaries: Binaries) -> None:
    """The OCI spec that every pod container starts from: kind's, without its hook for DMI files,
    which costs a shell per container start and hides hardware that no test asks for."""
    spec = json.loads(output([str(binaries / "ctr"), "oci", "spec"]))
    process = spec["process"]
    process.pop("rlimits", None)
    # Ordinary containers never get it from the kubelet, and root may not have it to give.
    for granted in process["capabilities"].values():
        granted[:] = [name for name in granted if name != "CAP_SYS_RESOURCE"]
    path.write_text(json.dumps(spec))


def _units(tree: Path, log: Path) -> None:
    for pattern in UNWANTED_UNITS:
        for link in tree.glob(pattern):
            link.unlink()
    with (tree / "etc/systemd/journald.conf").open("a") as stream:
        stream.write("ReadKMsg=no\n")
    shutil.copyfile(
        HERE / "files/tessera-routes.service", tree / "etc/systemd/system/tessera-routes.service"
    )
    units = ("kubelet", "containerd", "undo-mount-hacks", "tessera-routes")
    chroot = ["chroot", str(tree), "systemctl"]
    logged([*chroot, "enable", *(f"{unit}.service" for unit in units)], log)
    logged([*chroot, "mask", "systemd-binfmt.service"], log)
    init = tree / "sbin/init"
    init.unlink(missing_ok=True)
    init.symlink_to("/usr/lib/systemd/systemd")
