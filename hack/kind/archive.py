"""Container images written by hand: one layer, in the archive form that `docker load` and
`ctr images import` both read.

Why it exists: an image is a tar of a tree and two JSON files. Written directly, it needs no
running engine, and settings that `docker import` cannot express (the stop signal) are just fields.

Must not know: what the image is for.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.kind.shell import logged

DEFAULT_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EPOCH: Final = "2026-11-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"

    def document(self, layer_digest: str) -> bytes:
        config = {
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command) or None,
            "Env": [DEFAULT_PATH, *self.env],
            "StopSignal": self.stop_signal,
        }
        return json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": EPOCH,
                "config": config,
                "history": [{"created": EPOCH, "created_by": "hack.kind"}],
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            }
        ).encode()


def write_image(out: Path, name: str, tree: Path, config: ImageConfig) -> None:
    """An image of everything under `tree`, with owners, modes and device nodes as they are."""
    layer = out.with_suffix(".layer")
    logged(
        ["tar", "-C", str(tree), "--numeric-owner", "--sort=name", "-cf", str(layer), "."],
        out.with_suffix(".log"),
    )
    _pack(out, name, layer, config)


def write_small_image(
    out: Path, name: str, files: Mapping[str, Path | str | None], config: ImageConfig
) -> None:
    """An image of single files. A destination's value is a file (a Path), the target of a symlink
    (a str), or None for a folder that anybody may write to."""
    layer = out.with_suffix(".layer")
    with tarfile.open(layer, "w") as archive:
        for folder in sorted({p for name in files for p in _parents(name)}):
            archive.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
        for destination, source in sorted(files.items()):
            inside = destination.lstrip("/")
            if source is None:
                archive.addfile(_entry(inside, tarfile.DIRTYPE, 0o1777))
            elif isinstance(source, str):
                link = _entry(inside, tarfile.SYMTYPE, 0o777)
                link.linkname = source
                archive.addfile(link)
            else:
                archive.add(source.resolve(), inside)
    _pack(out, name, layer, config)


def _pack(out: Path, name: str, layer: Path, config: ImageConfig) -> None:
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    document = config.document(digest)
    config_name = hashlib.sha256(document).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(out, "w") as archive:
        archive.add(layer, f"{digest}.tar")
        for file, content in ((config_name, document), ("manifest.json", _json(manifest))):
            entry = _entry(file, tarfile.REGTYPE, 0o644)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    layer.unlink()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mode = mode
    return entry


def _parents(destination: str) -> list[str]:
    parts = destination.strip("/").split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]
