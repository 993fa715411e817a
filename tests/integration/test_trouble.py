"""What the plugin needs may be away: it says so, goes on, and finds it when it is back."""

from __future__ import annotations

import socket
import subprocess
import threading
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from hack.fakeapi.faults import Cut
from hack.testbed import DRIVER, Testbed, ready

pytestmark = pytest.mark.timeout(120)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_unready(bed: Testbed) -> int:
    """Start it and wait for its HTTP port; the port."""
    port = free_port()
    bed.start_plugin(f"--http-address=127.0.0.1:{port}", wait=False)
    assert bed.kubelet.wait_registered(DRIVER, timeout=30), bed.log_end()
    return port


def until_ready(port: int, *, wanted: bool = True) -> None:
    """Readiness has no event to wait for from outside; a probe every 50 ms, as a kubelet's."""
    tick = threading.Event()
    for _ in range(1200):
        if ready(port)[0] is wanted:
            return
        tick.wait(0.05)
    raise AssertionError(ready(port)[1])


def until_told(port: int, text: str) -> None:
    """It serves HTTP by now, and what keeps it from being ready contains the text."""
    tick = threading.Event()
    for _ in range(1200):
        with suppress(URLError):
            if text in ready(port)[1]:
                return
        tick.wait(0.05)
    raise AssertionError(ready(port)[1])


def alive(port: int) -> bool:
    with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
        return bool(answer.status == HTTPStatus.OK)


def test_a_driver_that_is_not_loaded_is_waited_for(bed: Testbed) -> None:
    bed.machine.driver_loaded(False)
    port = start_unready(bed)
    claim = bed.create_claim("x")
    allocated = bed.api.cluster.get("resourceclaims", "x", "default")
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-1/tessera", "device": "gpu-1"}
    pod = {"resource": "pods", "name": "p", "uid": "u"}
    allocated["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [pod]}
    bed.api.cluster.update("resourceclaims", allocated, subresource="status")
    assert "cannot be used yet" in bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error
    is_ready, why = ready(port)
    assert not is_ready
    assert "the NVIDIA kernel driver is not loaded" in why
    assert bed.slices() == []
    bed.machine.driver_loaded(True)
    until_ready(port)
    assert bed.complete()
    assert bed.log.read_text().count("GPUs cannot be read") == 1


def test_a_missing_library_is_waited_for_and_the_reason_names_the_folders(bed: Testbed) -> None:
    library = bed.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    away = library.with_name("away")
    library.rename(away)
    port = start_unready(bed)
    _, why = ready(port)
    assert "libnvidia-ml.so.1 is in none of usr/lib/x86_64-linux-gnu" in why
    away.rename(library)
    until_ready(port)


def test_no_gpu_in_nvml_while_the_bus_shows_some_is_not_ready(bed: Testbed) -> None:
    gpus = bed.machine.gpus
    for gpu in gpus:
        gpu.unplug()
    port = start_unready(bed)
    _, why = ready(port)
    assert "NVML shows no GPU, the PCI bus shows 2" in why
    assert bed.slices() == []
    for gpu in gpus:
        gpu.plug()
    until_ready(port)


def test_losing_nvml_later_leaves_the_slices_alone(bed: Testbed) -> None:
    port = free_port()
    bed.start_plugin(f"--http-address=127.0.0.1:{port}", "--rescan-seconds=1")
    until_ready(port)
    before = bed.slices()
    bed.api.requests.clear()
    bed.machine.driver_loaded(False)
    until_ready(port, wanted=False)
    bed.machine.wait_calls("nvmlInit*", bed.machine.calls("nvmlInit*") + 3, timeout=20)
    assert bed.slices() == before
    assert [w for w in bed.api.requests.writes() if w.resource == "resourceslices"] == []


def test_an_absent_api_server_is_waited_for_while_the_kubelet_is_served(bed: Testbed) -> None:
    rule = bed.api.fail(Cut())
    port = start_unready(bed)
    claim = bed.create_claim("a")
    error = bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error
    assert "will be tried again" in error or "cannot be used yet" in error
    assert bed.kubelet.unprepare(DRIVER, [claim])[claim.uid].error == ""
    assert not ready(port)[0]
    bed.api.faults.clear()
    assert rule.hits > 0
    until_ready(port)
    made = bed.allocate("a")
    assert bed.kubelet.prepare(DRIVER, [made])[made.uid].error == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--kubelet-registry-dir=/does/not/exist"], "/does/not/exist"),
        (["--kubelet-plugins-dir=/does/not/exist"], "/does/not/exist"),
        (["--node-name="], "--node-name"),
        (["--rescan-seconds=soon"], "--rescan-seconds: 'soon' is wrong"),
        (["--driver-name=A_b"], "--driver-name"),
        (["--colour=red"], "--colour=red is not a flag"),
        (["--kubeconfig=/does/not/exist"], "/does/not/exist"),
        (["--config=/does/not/exist"], "/does/not/exist"),
    ],
)
def test_a_wrong_setting_ends_with_2_and_names_it(
    bed: Testbed, change: list[str], said: str
) -> None:
    done = subprocess.run(
        [*bed.command(), *change],
        env=bed.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr.splitlines()[-1]


def test_a_wrong_environment_variable_ends_with_2_and_proposes_the_right_one(bed: Testbed) -> None:
    done = subprocess.run(
        bed.command(),
        env={**bed.environment(), "TESSERA_RESCAN_SECOND": "5"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "did you mean TESSERA_RESCAN_SECONDS?" in done.stderr


def test_a_file_where_the_plugin_folder_belongs_ends_with_2(bed: Testbed) -> None:
    Path(bed.plugins / DRIVER).write_text("")
    done = subprocess.run(
        bed.command(), env=bed.environment(), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert str(bed.plugins / DRIVER) in done.stderr
