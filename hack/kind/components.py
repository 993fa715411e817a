"""The images that kubeadm starts on a node, packed from our binaries.

Why it exists: the control plane runs as containers, and their images cannot be pulled.

Must not know: the node image around them. Names come from kubeadm itself, so that they are the
ones that it will ask for.
"""

import shutil
from pathlib import Path
from typing import Final

from hack.kind import versions
from hack.kind.archive import ImageConfig, write_small_image
from hack.kind.binaries import Binaries
from hack.kind.paths import HERE
from hack.kind.process import daemon
from hack.kind.shell import Failure, logged, output

# A small image for test pods: a shell and the usual commands, without a pull.
BUSYBOX: Final = "tessera.local/busybox:1"
PROXY_TOOLS: Final = ("/usr/sbin/nft", "/usr/sbin/xtables-nft-multi")
IMPORTER: Final = """version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{address}"
"""


def image_names(binaries: Binaries) -> dict[str, str]:
    """kubeadm's list, by the last part of the name: `kube-proxy` -> full name with tag."""
    argv = [
        str(binaries / "kubeadm"),
        "config",
        "images",
        "list",
        "--kubernetes-version",
        versions.KUBERNETES,
    ]
    names = output(argv).split()
    return {name.rpartition("/")[2].partition(":")[0]: name for name in names}


def write_images(binaries: Binaries, tree: Path, out: Path) -> list[Path]:
    """Archives of all images of a node; `tree`: the Debian tree that gives kube-proxy its tools."""
    names = image_names(binaries)
    out.mkdir()
    for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
        _program(out, names[program], binaries / program, {})
    _program(out, names["kube-proxy"], binaries / "kube-proxy", _proxy_tools(tree))
    pause = out / "pause"
    logged(
        ["gcc", "-Os", "-static", "-s", "-o", str(pause), str(HERE / "files" / "pause.c")],
        out / "gcc.log",
    )
    write_small_image(
        out / "pause.tar", names["pause"], {"/pause": pause}, ImageConfig(entrypoint=("/pause",))
    )
    _busybox(out, tree)
    return sorted(out.glob("*.tar"))


def _program(out: Path, name: str, program: Path, more: dict[str, Path | str | None]) -> None:
    inside = f"/usr/local/bin/{program.name}"
    files = {inside: program, **more}
    config = ImageConfig(entrypoint=(inside,))
    write_small_image(out / f"{program.name}.tar", name, files, config)


def _busybox(out: Path, tree: Path) -> None:
    busybox = tree / "bin/busybox"
    applets = output([str(busybox), "--list"]).split()
    files: dict[str, Path | str | None] = {f"/bin/{name}": "busybox" for name in applets}
    files |= {"/bin/busybox": busybox, "/tmp": None}
    config = ImageConfig(entrypoint=(), command=("sh",))
    write_small_image(out / "busybox.tar", BUSYBOX, files, config)


def _proxy_tools(tree: Path) -> dict[str, Path | str | None]:
    """nft, iptables on top of it, and the libraries that both need, from the node's own tree."""
    files: dict[str, Path | str | None] = {
        "/usr/sbin/iptables": "xtables-nft-multi",
        "/usr/sbin/ip6tables": "xtables-nft-multi",
    }
    for tool in PROXY_TOOLS:
        files[tool] = inside(tree, tool)
        for line in output(["chroot", str(tree), "ldd", tool]).splitlines():
            for word in line.split():
                if word.startswith("/"):
                    files[word] = inside(tree, word)
    return files


def inside(tree: Path, path: str) -> Path:
    """The file that `path` means in a chroot at `tree`, with absolute links kept inside it."""
    where = tree
    for part in path.strip("/").split("/"):
        where = where / part
        for _ in range(10):
            if not where.is_symlink():
                break
            target = where.readlink()
            where = (
                tree / str(target).lstrip("/") if target.is_absolute() else (where.parent / target)
            )
    if not where.exists():
        raise Failure(f"{path} is missing in the tree; is its package in PACKAGES?")
    return where


def store(binaries: Binaries, archives: list[Path], root: Path, work: Path) -> None:
    """Put the images into the content store of a containerd whose root is `root`."""
    work.mkdir()
    address = work / "socket"
    configuration = work / "config.toml"
    configuration.write_text(IMPORTER.format(root=root, state=work / "state", address=address))
    argv = [str(binaries / "containerd"), "--config", str(configuration)]
    with daemon(argv, work / "containerd.log", env={"PATH": "/usr/bin:/bin"}, timeout=30) as child:
        try:
            for archive in archives:
                ctr = [str(binaries / "ctr"), "-a", str(address), "-n", "k8s.io"]
                # Unpacked on first use: a node copies its /var at creation; this keeps it small.
                logged([*ctr, "images", "import", "--no-unpack", str(archive)], work / "ctr.log")
        finally:
            child.terminate()
            child.wait(timeout=30)
    shutil.rmtree(work / "state", ignore_errors=True)
