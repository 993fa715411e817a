"""The tools of this folder, on the simulated library: they are right before they meet a GPU."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from hack.simnvml.testing import preload, shut_down
from tests.gpu import smi
from tests.gpu.readonly import ChangesAreRefused, is_reading, read_only
from tests.gpu.test_real import REPOSITORY, asked_by_the_adapter, transcript

CHANGE = re.compile(
    r"Set[A-Z]|Create|Destroy|Clear|Reset[A-Z]|Remove|Modify|Register|Free(?![a-z])"
)


def test_no_call_that_changes_passes_for_reading() -> None:
    functions = [
        n for n, f in vars(pynvml).items() if n.startswith("nvml") and inspect.isfunction(f)
    ]
    changing = [n for n in functions if CHANGE.search(n) and "Get" not in n]
    assert len(changing) > 40
    assert [name for name in changing if is_reading(name)] == []
    assert is_reading("nvmlDeviceGetUUID")
    assert is_reading("nvmlSystemGetConfComputeSettings")
    assert is_reading("nvmlGpuInstanceGetInfo")
    assert not is_reading("nvmlDeviceSetMigMode")
    assert not is_reading("nvmlEventSetCreate")


def test_a_change_is_refused_before_it_reaches_the_library(make_machine) -> None:
    machine = make_machine("h100x1")
    preload()
    with read_only():
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(ChangesAreRefused, match="nvmlDeviceSetMigMode is not a call that only"):
            pynvml.nvmlDeviceSetMigMode(gpu, 1)
    shut_down()
    assert machine.calls("nvmlDeviceSet*") == 0
    assert machine.gpu(0).get("mig_current") == 0


def test_a_transcript_has_code_and_type_of_every_call_of_the_adapter_and_no_value(
    make_machine,
) -> None:
    machine = make_machine("gb200-tray")
    found = transcript(preload())
    calls = found["gpus"][0]["calls"]
    recorded = {name.partition("(")[0] for name in (*calls, *found["system"])}
    by_index = {"nvmlDeviceGetHandleByIndex"}  # asked for each GPU before its calls
    assert asked_by_the_adapter() - by_index <= recorded
    assert len(calls) > 100
    assert calls["nvmlDeviceGetUUID"] == {"code": 0, "type": "str"}
    assert calls["nvmlDeviceGetMigMode"] == {"code": 0, "type": "list[int]"}
    missing = calls["nvmlDeviceGetMigDeviceHandleByIndex(0)"]
    assert missing == {"code": pynvml.NVML_ERROR_NOT_SUPPORTED}
    text = json.dumps(found)
    for gpu in machine.gpus:
        assert gpu.uuid not in text
        assert str(gpu.get("serial")) not in text
    changing = [call.symbol for call in machine.last_calls() if not is_reading(call.symbol)]
    assert changing == []


def test_two_transcripts_of_one_machine_are_equal(make_machine) -> None:
    make_machine("mixed")
    assert transcript(preload()) == transcript(preload())


def test_without_a_driver_the_recorder_says_so_and_fails(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.record", "--driver-root", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "NVML does not answer here: " in done.stderr
    assert str(tmp_path) in done.stderr


def test_the_listing_is_read_without_its_partitions() -> None:
    text = (
        "GPU 0: NVIDIA H200 (UUID: GPU-0a1b2c3d-0000-4000-8000-000000000001)\n"
        "  MIG 1g.18gb     Device  0: (UUID: MIG-1c2d)\n"
        "GPU 1: NVIDIA L4 (UUID: GPU-0a1b2c3d-0000-4000-8000-000000000002)\n"
    )
    assert smi.listed(text) == [
        (0, "NVIDIA H200", "GPU-0a1b2c3d-0000-4000-8000-000000000001"),
        (1, "NVIDIA L4", "GPU-0a1b2c3d-0000-4000-8000-000000000002"),
    ]


def test_the_long_listing_is_read_field_by_field() -> None:
    driver, gpus = smi.queried(Path(__file__).with_name("smi.xml").read_text())
    assert driver == {"driver": "580.95.05", "cuda": "13.0"}
    assert gpus == [
        {
            "uuid": "GPU-0a1b2c3d-0000-4000-8000-000000000001",
            "product": "NVIDIA H200",
            "architecture": "Hopper",
            "serial": "1650000000001",
            "minor": 3,
            "pci": "0000:1b:00.0",
            "memory_mib": 143771,
            "mig": ("Disabled", "Enabled"),
        },
        {
            "uuid": "GPU-0a1b2c3d-0000-4000-8000-000000000002",
            "product": "NVIDIA GB10",
            "architecture": "Blackwell",
            "serial": None,
            "minor": 0,
            "pci": "000f:01:00.0",
            "memory_mib": None,
            "mig": (None, None),
        },
    ]
