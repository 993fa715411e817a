import errno
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from driver.core.cdi import DeviceNode, DriverFiles, Mount, build_spec, read_devices
from driver.core.errors import ConfigError, StateError
from driver.core.ids import ClaimUID
from driver.core.names import cdi_file
from driver.state.cdi_store import CdiDir
from tests.state.faults import ScriptedFiles, names
from tests.state.test_ledger_file import ONE

SCHEMA = json.loads((Path(__file__).parents[1] / "data/cdi-schema.json").read_text())
UID = ONE.uid


def spec(library: str = "/usr/lib64/libcuda.so.580") -> dict[str, Any]:
    node = DeviceNode(path="/dev/nvidia0", host_path="/dev/nvidia0", major=195, minor=0)
    files = DriverFiles(
        gpus={ONE.holdings[0].gpu: node},
        control=(DeviceNode(path="/dev/nvidiactl", host_path="/x", major=195, minor=255),),
        mounts=(Mount(host_path=library, container_path="/usr/lib64/libcuda.so.1"),),
    )
    return build_spec(ONE, files)


def test_a_spec_is_written_once_valid_and_readable_for_all_runtimes(tmp_path):
    files = ScriptedFiles()
    store = CdiDir(tmp_path / "run" / "cdi", files=files)
    assert store.ensure(UID, spec())
    files.calls.clear()
    assert not store.ensure(UID, dict(reversed(spec().items())))
    assert files.calls == []
    path = tmp_path / "run" / "cdi" / cdi_file(UID)
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("content", [b"", b"{}", b"half a fi", b"\xff"])
def test_what_is_not_equal_is_written_again(tmp_path, content):
    store = CdiDir(tmp_path)
    store.ensure(UID, spec())
    whole = (tmp_path / cdi_file(UID)).read_bytes()
    (tmp_path / cdi_file(UID)).write_bytes(content)
    assert store.ensure(UID, spec())
    assert (tmp_path / cdi_file(UID)).read_bytes() == whole
    assert store.ensure(UID, spec("/usr/lib64/libcuda.so.590"))


def test_the_folder_may_vanish_while_the_plugin_runs(tmp_path):
    store = CdiDir(tmp_path / "cdi")
    store.ensure(UID, spec())
    (tmp_path / "cdi" / cdi_file(UID)).unlink()
    (tmp_path / "cdi").rmdir()
    assert store.claims() == frozenset()
    store.remove(UID)
    assert store.ensure(UID, spec())
    assert store.claims() == {UID}


def test_only_files_of_ours_count(tmp_path):
    store = CdiDir(tmp_path)
    store.ensure(UID, spec())
    store.ensure(ClaimUID("b"), spec())
    for name in (
        "nvidia.yaml",
        "tessera.dev-claim_.json",
        "tessera.dev-claim_a.b.json",
        "tessera.dev-claim_c.json.bak",
        "other-claim_d.json",
    ):
        (tmp_path / name).touch()
    assert store.claims() == {UID, ClaimUID("b")}
    store.remove(UID)
    store.remove(UID)
    assert store.claims() == {ClaimUID("b")}
    assert (tmp_path / "nvidia.yaml").exists()


def test_a_uid_that_could_name_another_file_is_refused(tmp_path):
    store = CdiDir(tmp_path / "cdi")
    with pytest.raises(StateError, match="cannot be a file name"):
        store.ensure(ClaimUID("x/../../y"), spec())
    with pytest.raises(StateError, match="cannot be a file name"):
        store.remove(ClaimUID("../y"))
    assert names(tmp_path / "cdi") == []


def test_a_missing_folder_is_a_configuration_error_where_it_may_not_be_made(tmp_path):
    with pytest.raises(ConfigError, match=f"cdi_dir {tmp_path}/cdi is not a folder.*cdi_spec_dirs"):
        CdiDir(tmp_path / "cdi", create=False)


def test_a_spec_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / cdi_file(UID)).mkdir()
    with pytest.raises(StateError, match="a folder is in the way"):
        CdiDir(tmp_path).ensure(UID, spec())


def test_a_folder_that_cannot_be_used_stops_no_start_and_is_used_when_it_can(tmp_path, caplog):
    place = tmp_path / "cdi"
    place.write_text("")
    store = CdiDir(place)
    assert f"cannot make the folder {place}" in caplog.text
    assert store.claims() == frozenset()
    store.remove(UID)
    with pytest.raises(StateError, match=f"{place}/.*something on the path is not a folder"):
        store.ensure(UID, spec())
    place.unlink()
    assert store.ensure(UID, spec())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_is_told_with_the_file_and_the_next_step(tmp_path, code):
    broken = ScriptedFiles(fail_at=0, error=OSError(code, os.strerror(code)))
    store = CdiDir(tmp_path, files=broken)
    assert store.ensure(UID, spec())
    broken.fail_at, broken.error = len(broken.calls), OSError(code, os.strerror(code))
    with pytest.raises(StateError, match=rf"cannot remove {tmp_path}/{cdi_file(UID)}: .*; "):
        store.remove(UID)
    assert store.read(UID) == spec()


def test_a_file_is_read_back_and_what_is_no_json_is_nothing(tmp_path):
    store = CdiDir(tmp_path)
    assert store.read(UID) is None
    store.ensure(UID, spec())
    assert store.read(UID) == spec()
    assert read_devices(store.read(UID), UID) == {h.device: h.uuid for h in ONE.holdings}
    for content in ('{"cdiVersion": ', "[" * 200_000):
        (tmp_path / cdi_file(UID)).write_text(content)
        assert store.read(UID) is None


def test_a_folder_that_cannot_be_listed_is_an_error_with_its_name(tmp_path, monkeypatch):
    def listdir(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(StateError, match=f"cannot read {tmp_path}: .*the disk failed"):
        CdiDir(tmp_path).claims()
