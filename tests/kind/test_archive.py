"""Images written by hand are read back as an engine reads them."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import IO

from hack.kind.archive import ImageConfig, write_small_image


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = archive.extractfile(name)
    assert stream is not None
    return stream


def test_manifest_configuration_and_layer_lead_to_each_other(tmp_path: Path):
    program = tmp_path / "program"
    program.write_text("#!")
    program.chmod(0o755)
    out = tmp_path / "image.tar"
    config = ImageConfig(entrypoint=("/bin/program",), stop_signal="SIGRTMIN+3")
    files: dict[str, Path | str | None] = {
        "/bin/program": program,
        "/bin/alias": "program",
        "/tmp": None,
    }
    write_small_image(out, "example.test/image:1", files, config)

    with tarfile.open(out) as archive:
        (manifest,) = json.load(member(archive, "manifest.json"))
        assert manifest["RepoTags"] == ["example.test/image:1"]
        raw = member(archive, manifest["Config"]).read()
        assert manifest["Config"] == hashlib.sha256(raw).hexdigest() + ".json"
        document = json.loads(raw)
        assert document["config"]["Entrypoint"] == ["/bin/program"]
        assert document["config"]["StopSignal"] == "SIGRTMIN+3"
        layer = member(archive, manifest["Layers"][0]).read()
    assert document["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tree:
        entries = {entry.name: entry for entry in tree}
    assert entries["bin/program"].mode & 0o111
    assert entries["bin/alias"].linkname == "program"
    assert entries["tmp"].mode == 0o1777
    assert [p.name for p in tmp_path.glob("*.layer")] == []
