"""What an administrator does on a node, through the command and the real plugin's socket."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from driver import cli
from driver.control.client import Client, RefusedError
from hack.simcuda.testing import FOR_EVER_MS
from hack.testbed import DRIVER, Testbed
from tests.integration.test_recovery import EVENTS
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(180)

OFTEN = "--health-seconds=1"


def folder(bed: Testbed) -> Path:
    return bed.plugins / DRIVER


def tessera(bed: Testbed, *arguments: str) -> int:
    return cli.main([*arguments, "--plugin-dir", str(folder(bed))])


def status(bed: Testbed) -> dict[str, Any]:
    return Client(folder(bed)).ask("GET", "/v1/status")


def state(bed: Testbed, gpu: int) -> str:
    uuid = bed.machine.gpu(gpu).uuid
    return next(str(g["state"]) for g in status(bed)["gpus"] if g["uuid"] == uuid)


def holders(bed: Testbed) -> list[int]:
    """Processes that have a library of the driver root in their memory: the plugin's NVML, and the
    CUDA of a probe.
    """
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:
            continue  # it has ended, or is none of ours
        if f"{bed.root}/" in text:
            found.append(int(maps.parent.name))
    return found


def reset(bed: Testbed, gpu: int) -> bool:
    """Somebody else resets a GPU, which is refused while a process has the driver open."""
    if holders(bed):
        return False
    bed.machine.gpu(gpu).reset()
    return True


def test_status_shows_boards_devices_and_who_has_what(
    bed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.start_plugin()
    claim = bed.claim("a", profile="3g.40gb")
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error == ""
    assert tessera(bed, "status", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    facts = {"node": "node-1", "driver": DRIVER, "leads": True, "state": "ready", "release": None}
    assert facts.items() <= found.items()
    assert [g["uuid"] for g in found["gpus"]] == [g.uuid for g in bed.machine.gpus]
    assert [(g["index"], g["minor"], g["mode"]) for g in found["gpus"]] == [
        (0, 0, "dynamic"),
        (1, 1, "dynamic"),
    ]
    published = {d["name"] for s in bed.slices() for d in s["spec"].get("devices", ())}
    assert {d["name"] for d in found["devices"]} == published
    ((device,),) = [c["devices"] for c in found["claims"] if c["name"] == "a"]
    assert (device["profile"], device["uuid"][:4]) == ("3g.40gb", "MIG-")
    assert found["kernelLog"]["lost"] == 0

    assert tessera(bed, "status") == 0
    text = capsys.readouterr().out
    assert f"default/a  {device['name']}  {device['uuid']}  completed" in text
    assert tessera(bed, "explain", device["uuid"]) == 0
    assert f"claim default/a has {device['name']}" in capsys.readouterr().out


def test_a_withheld_gpu_is_explained_and_only_an_operators_fault_can_be_acknowledged(
    bed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.start_plugin(OFTEN)
    asks, broken = bed.machine.gpu(0), bed.machine.gpu(1)
    asks.recovery(1)
    until(lambda: state(bed, 0) == "reset", "the advice is taken in")
    name = next(d["name"] for d in status(bed)["devices"] if d["gpu"] == asks.uuid)
    assert tessera(bed, "explain", name) == 0
    text = capsys.readouterr().out
    assert f"{name}: withheld until the GPU is reset and a probe passes" in text
    assert "clears by: a GPU reset, then a passed probe; to act: an administrator" in text

    def ack(uuid: str, fault: str, serial: str) -> int:
        flags = {"--gpu": uuid, "--name": fault, "--serial": serial, "--by": "ada"}
        return tessera(bed, "ack", *(each for pair in flags.items() for each in pair))

    assert ack(asks.uuid, "recovery-action", "1") == 1
    assert "needs a reset, not an acknowledgement" in capsys.readouterr().err
    assert ack(asks.uuid, "xid-7", "1") == 2
    assert "nothing is held against it by that name; open are: recovery" in capsys.readouterr().err

    # One page too many: an event, of which nothing can be looked at again.
    broken.event(0x800)
    until(lambda: state(bed, 1) == "operator", "the event is taken in")
    assert ack(broken.uuid, "row-remap-event", "1") == 1
    serial = next(g["serial"] for g in status(bed)["gpus"] if g["uuid"] == broken.uuid)
    assert f"the board's serial number is {serial}, not '1'" in capsys.readouterr().err
    assert ack(broken.uuid, "row-remap-event", serial) == 0
    # It comes back by a probe, and without a restart.
    until(lambda: state(bed, 1) == "ready", "a probe has passed")


def test_nothing_is_held_in_a_release_window_and_a_reset_by_others_brings_a_gpu_back(
    bed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.start_plugin(OFTEN, "--unknown-seconds=1")
    assert bed.process is not None
    waiting = bed.claim("waiting")
    bed.machine.gpu(1).recovery(1)
    until(lambda: state(bed, 1) == "reset", "the advice is taken in")
    assert not reset(bed, 1)
    began = time.monotonic()
    answer = Client(folder(bed)).ask("POST", "/v1/release", body={"seconds": 600})
    took = time.monotonic() - began
    assert (answer["held"], holders(bed)) == (False, [])
    assert took < 5, "a wait of half a second for events, and a busy machine"

    failed = bed.kubelet.prepare(DRIVER, [waiting])[waiting.uid].error
    assert "so that one can be reset or cut by others; it is tried again" in failed
    assert tessera(bed, "status") == 0
    assert "release window: another" in capsys.readouterr().out
    # Longer than what cannot be told is borne: our own release is held against nobody.
    until(lambda: _seen_released(bed) > 2, "the poll tells of the release")
    assert state(bed, 0) == "ready"
    bed.kmsg(f"NVRM: Xid (PCI:{_address(bed, 1)}): 43, pid=7, name=job, Ch 00000008")
    until(lambda: "xid-43" in {e["name"] for e in status(bed)["evidence"]}, "the log is read")
    assert holders(bed) == []
    assert reset(bed, 1)

    assert tessera(bed, "release", "--end") == 0
    until(lambda: holders(bed) == [bed.process.pid] if bed.process else False, "it is open again")
    until(lambda: state(bed, 1) == "ready", "the reset was seen, and a probe has passed")
    assert bed.kubelet.prepare(DRIVER, [waiting])[waiting.uid].error == ""
    assert tessera(bed, "release", "--end") == 0
    assert "no window is open" in capsys.readouterr().out


def test_a_gpu_whose_advice_asks_for_nothing_comes_back_by_the_word_of_who_has_reset_it(
    bed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.start_plugin(OFTEN)
    gpu = bed.machine.gpu(1).uuid
    bed.kmsg(f"NVRM: Xid (PCI:{_address(bed, 1)}): 140, pid=7, name=job, ECC unrecovered")
    until(lambda: state(bed, 1) == "reset", "the log is read")
    done = ("reset-done", "--gpu", gpu, "--by", "ada")
    assert tessera(bed, *done) == 1
    assert "has held the GPU, so it cannot have been reset" in capsys.readouterr().err

    assert tessera(bed, "release", "--seconds", "600") == 0
    until(lambda: reset(bed, 1), "nobody has the driver open")
    assert tessera(bed, "release", "--end") == 0
    assert state(bed, 1) == "reset"
    assert tessera(bed, *done) == 0
    until(lambda: state(bed, 1) == "ready", "a probe has passed")
    until(
        lambda: (
            f"GPU {gpu}: was reset, as ada says"
            in [e["note"] for e in bed.api.cluster.list(EVENTS)[0] if e["reason"] == "DeviceReset"]
        ),
        "it is told",
    )


def _address(bed: Testbed, gpu: int) -> str:
    """As the driver writes it: without the function."""
    uuid = bed.machine.gpu(gpu).uuid
    return next(str(g["pci"])[:-2] for g in status(bed)["gpus"] if g["uuid"] == uuid)


def _seen_released(bed: Testbed) -> int:
    """How often the poll has told of it, every second or sooner."""
    told = [e for e in status(bed)["evidence"] if e["name"] == "nvml-released"]
    return max((int(e["count"]) for e in told if e["source"] == "nvml-poll"), default=0)


def test_a_probe_that_runs_is_ended_by_a_release_and_made_after_it(bed: Testbed) -> None:
    bed.start_plugin(OFTEN)
    assert bed.process is not None
    hang = bed.machine.rule("cuCtxSynchronize", delay_ms=FOR_EVER_MS)
    bed.machine.gpu(0).event(0x2)  # a memory error, of which only a probe knows more
    until(lambda: len(holders(bed)) == 2, "the plugin and a probe have the driver open")
    assert tessera(bed, "release", "--seconds", "600") == 0
    until(lambda: not holders(bed), "a killed probe ends")
    hang.clear()
    assert state(bed, 0) != "ready"
    assert tessera(bed, "release", "--end") == 0
    until(lambda: state(bed, 0) == "ready", "a probe has passed")


def test_a_window_that_is_forgotten_ends_by_itself(bed: Testbed) -> None:
    bed.start_plugin()
    assert tessera(bed, "release", "--seconds", "1") == 0
    until(lambda: holders(bed), "it is open again")
    until(lambda: status(bed)["release"] is None, "the window is over")
    assert status(bed)["problem"] == ""


def test_of_two_plugins_the_one_that_stands_by_answers_and_changes_nothing(bed: Testbed) -> None:
    bed.start_plugin()
    first = bed.process
    assert first is not None
    bed.start_plugin("--pod-uid=11111111-2222-3333-4444-555555555555", wait=False)
    second = bed.process
    assert second is not None
    try:
        until(lambda: not status(bed)["leads"], "the newest answers")
        client = Client(folder(bed))
        with pytest.raises(RefusedError, match="another plugin pod of this node leads"):
            client.ask("POST", "/v1/release", body={"seconds": 5})
        first.terminate()
        assert first.wait(60) == 0
        until(lambda: status(bed)["leads"], "the lead is given on, and the socket stays")
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()


def test_without_a_plugin_the_path_and_the_next_step_are_named(
    bed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in ("never started", "ended"):
        assert tessera(bed, "status") == 1
        error = capsys.readouterr().err
        assert str(folder(bed) / "control.sock") in error
        assert "no plugin serves it; run this on the node" in error
        bed.start_plugin()
        assert bed.stop_plugin() == 0
    assert not (folder(bed) / "control.sock").exists()
