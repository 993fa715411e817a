"""The adapter on the GPUs of this machine, against witnesses that do not use it. Read-only."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driver.config.settings import REQUIRED_LIBRARIES
from driver.core.inventory import build_inventory
from driver.core.pools import build_pool
from driver.state.driver_root import DriverTree, Roots
from hack.simnvml.boards import boards
from hack.simnvml.build import library_path
from hack.simnvml.kit import Machine
from tests.gpu import smi
from tests.gpu.conftest import RealNode

pytestmark = pytest.mark.gpu

REPOSITORY = Path(__file__).resolve().parents[2]
MIG = {"Enabled": True, "Disabled": False}


def said_by_smi(real: RealNode, *words: str) -> str:
    """Of the driver root, which has the library's version; else the one in PATH."""
    in_path = shutil.which("nvidia-smi")
    for program in (real.root / "usr/bin/nvidia-smi", Path(in_path or "/nonexistent")):
        if (text := smi.run(program, *words)) is not None:
            return text
    pytest.skip(f"no nvidia-smi that answers {' '.join(words)}")


def test_there_are_gpus_and_all_of_them_answer(real) -> None:
    assert real.snapshot.gpus
    assert real.snapshot.lost == ()


def test_products_and_uuids_are_those_of_the_listing(real) -> None:
    listed = smi.listed(said_by_smi(real, "-L"))
    assert [(gpu.index, gpu.product, gpu.uuid) for gpu in real.snapshot.gpus] == listed


def test_every_field_is_the_one_that_nvidia_smi_shows(real) -> None:
    driver, gpus = smi.queried(said_by_smi(real, "-q", "-x"))
    assert real.snapshot.driver.driver == driver["driver"]
    cuda = real.snapshot.driver.cuda
    assert (cuda and f"{cuda[0]}.{cuda[1]}") == driver["cuda"]
    told = {gpu["uuid"]: gpu for gpu in gpus}
    assert {gpu.uuid for gpu in real.snapshot.gpus} == told.keys()
    for gpu in real.snapshot.gpus:
        other = told[gpu.uuid]
        memory = None if gpu.memory is None else gpu.memory // 2**20
        assert (gpu.product, str(gpu.pci), memory) == (
            other["product"],
            other["pci"],
            other["memory_mib"],
        )
        assert (gpu.minor, gpu.serial) == (other["minor"], other["serial"])
        assert gpu.architecture == other["architecture"]
        modes = (gpu.mig.enabled, gpu.mig.pending)
        assert other["mig"] == (None, None) or modes == tuple(MIG[m] for m in other["mig"])
        assert gpu.mig.capable == (other["mig"] != (None, None))


def test_what_is_read_twice_is_equal_and_closing_leaves_no_open_device(real) -> None:
    assert real.library.snapshot() == real.snapshot
    real.library.close()
    assert open_devices() == []
    assert real.library.snapshot() == real.snapshot


def test_the_gpus_can_be_published(real) -> None:
    inventory = build_inventory(real.snapshot)
    pool = build_pool(inventory, driver="gpu.tessera.dev", node="real")
    published = [device.name for each in pool.slices for device in each.devices]
    whole = [gpu for gpu in real.snapshot.gpus if not gpu.mig.enabled]
    assert len(published) == len(set(published)) == len(whole)


def test_a_claim_for_every_gpu_could_be_prepared_from_the_driver_root(real) -> None:
    tree = DriverTree(
        Roots(root=real.root, host_root=real.root),
        container_folders=("/usr/lib64",),
        required=REQUIRED_LIBRARIES,
    )
    files = tree.files(real.snapshot.gpus)
    assert {files.gpus[gpu.uuid].minor for gpu in real.snapshot.gpus} == {
        gpu.minor for gpu in real.snapshot.gpus
    }
    assert all(Path(mount.host_path).is_file() for mount in files.mounts)


def test_the_simulated_board_answers_what_the_adapter_asks_with_the_same_codes_and_types(
    real, tmp_path, monkeypatch
) -> None:
    """A difference is a defect of the simulator."""
    first = real.snapshot.gpus[0]
    key = next((key for key, board in boards().items() if board.product == first.product), None)
    if key is None:
        pytest.skip(f"no simulated board is a {first.product}")
    heard = transcript(real.path)
    machine = Machine.create(tmp_path / "machine", [key], driver=real.snapshot.driver.driver)
    monkeypatch.setenv("SIMNVML_STATE", str(machine.path))
    simulated = transcript(library_path())
    asked = asked_by_the_adapter()
    machine.close()
    for part in ("system", "calls"):
        truth, claimed = (
            each["system"] if part == "system" else each["gpus"][0]["calls"]
            for each in (heard, simulated)
        )
        relevant = {name for name in truth if name.partition("(")[0] in asked}
        assert {name: claimed[name] for name in relevant} == {
            name: truth[name] for name in relevant
        }


def transcript(library: Path) -> dict[str, Any]:
    """In a process of its own: the binding holds one library at a time."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.record", "--library", str(library)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def asked_by_the_adapter() -> set[str]:
    """Of a whole GPU: what a partition answers needs one, which a read-only run does not make."""
    source = (REPOSITORY / "driver/nvml/snapshot.py").read_text()
    return set(re.findall(r'"(nvml\w+)"', source))


def open_devices() -> list[str]:
    links = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    targets = [os.readlink(each) for each in links]  # noqa: PTH115 - the text, not a path
    return [target for target in targets if target.startswith("/dev/nvidia")]
