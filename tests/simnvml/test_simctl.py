"""simctl: each command does what its name says to the machine of --path."""

from __future__ import annotations

import json

import pynvml as n
import pytest

from hack.simnvml.__main__ import main
from hack.simnvml.kit import Machine
from tests.simnvml.helpers import code_of, partition, start


@pytest.fixture
def simctl(make_machine):
    machine = make_machine("h100x2")

    def run(*words: str) -> int:
        return main(["--path", str(machine.path), *words])

    return run


def test_create_makes_machine_and_driver_root(tmp_path, capsys) -> None:
    root = tmp_path / "root"
    words = ["create", "--preset", "a30x4", "--seed", "n7", "--root", str(root), "--live"]
    assert main(["--path", str(tmp_path / "m"), *words]) == 0
    assert capsys.readouterr().out.count("NVIDIA A30") == 4
    assert (root / "usr/bin/nvidia-smi").exists()
    assert len(Machine.open(tmp_path / "m").gpus) == 4


def test_show_tells_of_instances(nvml, simctl, capsys) -> None:
    _, _, uuid = partition(start(1, mig=True))
    assert simctl("show") == 0
    assert f"1g.10gb at 6:1  CI 0  {uuid}" in capsys.readouterr().out
    simctl("show", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["gpus"][1]["instances"][0]["uuid"] == uuid
    assert shown["gpus"][0]["instances"] == []


def test_faults_and_repairs(nvml, simctl) -> None:
    gpu = start(0)
    assert simctl("lose", "0", "--off-bus") == 0
    assert code_of(n.nvmlDeviceGetName, gpu) == n.NVML_ERROR_GPU_IS_LOST
    simctl("reset", "0")
    assert code_of(n.nvmlDeviceGetName, gpu) == 0
    simctl("unplug", "1")
    assert n.nvmlDeviceGetCount() == 1
    simctl("plug", "1")
    simctl("unload")
    assert code_of(n.nvmlDeviceGetCount) == n.NVML_ERROR_DRIVER_NOT_LOADED
    simctl("load")
    assert n.nvmlDeviceGetCount() == 2


def test_set_understands_numbers_lists_text_and_none(nvml, simctl) -> None:
    gpu = start(0)
    fields = ["temp=0x5B", "name=Odd GPU", "ecc_errors=1,2,3,4", "serial=none"]
    assert simctl("set", "0", *fields) == 0
    assert n.nvmlDeviceGetTemperature(gpu, 0) == 91
    assert n.nvmlDeviceGetName(gpu) == "Odd GPU"
    assert n.nvmlDeviceGetTotalEccErrors(gpu, 1, 1) == 4
    assert code_of(n.nvmlDeviceGetSerial, gpu) == n.NVML_ERROR_NOT_SUPPORTED
    assert simctl("set", "-1", "driver=590.1") == 0
    assert n.nvmlSystemGetDriverVersion() == "590.1"


def test_rules_are_added_listed_and_cleared(nvml, simctl, capsys) -> None:
    gpu = start(0)
    assert simctl("rule", "add", "nvmlDeviceGetName", "--ret", "999", "--times", "5") == 0
    assert code_of(n.nvmlDeviceGetName, gpu) == 999
    capsys.readouterr()
    simctl("rule", "list")
    listed = json.loads(capsys.readouterr().out)
    assert (listed["left"], listed["hits"]) == (4, 1)
    simctl("rule", "clear", str(listed["id"]))
    assert code_of(n.nvmlDeviceGetName, gpu) == 0
    capsys.readouterr()
    simctl("calls", "nvmlDeviceGetName")
    assert capsys.readouterr().out == "2\n"


def test_a_script_runs_its_lines_in_time(nvml, simctl, tmp_path) -> None:
    gpu = start(0)
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(gpu, n.nvmlEventTypeXidCriticalError, events)
    script = tmp_path / "scenario"
    script.write_text("0.05 set 0 temp=88\n# later first in the file\n0.0 xid 0 48 --gi 1\n")
    assert simctl("serve-script", str(script)) == 0
    assert n.nvmlEventSetWait_v2(events, 0).gpuInstanceId == 1
    assert n.nvmlDeviceGetTemperature(gpu, 0) == 88


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["set", "0", "tmep=1"], "no field 'tmep'"),
        (["set", "0", "temp"], "not field=value"),
        (["lose", "99"], "slot 99"),
        (["busy", "0", "--gi", "3"], "no instance 3"),
        (["create", "--preset", "h900"], "there are dgx-h100"),
    ],
)
def test_mistakes_are_named(simctl, capsys, words, complaint) -> None:
    assert simctl(*words) == 1
    assert complaint in capsys.readouterr().err


def test_a_path_without_a_machine_says_how_to_make_one(tmp_path, capsys) -> None:
    assert main(["--path", str(tmp_path), "show"]) == 1
    assert "create one" in capsys.readouterr().err
