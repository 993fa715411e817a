"""A dcgm-exporter on loopback: what it shows, and every way in which it may not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from driver.core.health.signals import CannotTell, Fault, Need, Signal, Source, Well
from driver.core.ids import GpuUuid
from driver.observe.dcgm import DcgmExporter
from driver.plugin.supervise import Wakeup

GPU, OTHER = GpuUuid("GPU-aaaa"), GpuUuid("GPU-bbbb")
REMAP = "DCGM_FI_DEV_ROW_REMAP_FAILURE"


def metric(name: str, value: float | str, gpu: str = GPU) -> str:
    labels = f'gpu="0",UUID="{gpu}",device="nvidia0",modelName="NVIDIA H100",Hostname="node"'
    return f"# HELP {name} help\n# TYPE {name} gauge\n{name}{{{labels}}} {value}\n"


class Exporter(ThreadingHTTPServer):
    daemon_threads = True
    text = metric(REMAP, 0)
    code = 200
    drip: Callable[[BaseHTTPRequestHandler], None] | None = None
    asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.code)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        try:
            if self.server.drip is not None:
                self.server.drip(self)
            else:
                self.wfile.write(self.server.text.encode())
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        pass


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    server = Exporter(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def source(exporter: Exporter, timeout: float = 5.0) -> DcgmExporter:
    return DcgmExporter(
        f"http://127.0.0.1:{exporter.server_address[1]}/metrics",
        gpus=lambda: (GPU, OTHER),
        branch=lambda: 580,
        sink=lambda *_: None,
        alarm=Wakeup(),
        timeout=timeout,
    )


def faults(signals: list[Signal]) -> dict[str, Need]:
    return {s.name: s.need for s in signals if isinstance(s, Fault)}


def unavailable(signals: list[Signal]) -> str:
    (only,) = signals
    assert isinstance(only, CannotTell)
    assert (only.source, only.name, only.scope.gpu) == (Source.DCGM, "dcgm", None)
    return only.detail


def test_a_well_gpu_is_well(exporter) -> None:
    signals = source(exporter).look()
    assert {(s.name, s.scope.gpu) for s in signals if isinstance(s, Well)} == {
        ("dcgm", None),
        ("row-remap-failure", GPU),
    }
    assert faults(signals) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (REMAP, 1, {"row-remap-failure": Need.OPERATOR}),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", 1, {"row-remap-pending": Need.WATCH}),
        ("DCGM_FI_DEV_SRAM_EXCEEDED", 1, {"sram-threshold": Need.OPERATOR}),
        ("DCGM_FI_DEV_THRESHOLD_SRM", 1, {"sram-threshold": Need.OPERATOR}),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", 1, {"recovery-action": Need.RESET}),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 2, {"recovery-action": Need.REBOOT}),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", 0, {}),
        ("DCGM_FI_DEV_XID_ERRORS", 79, {}),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", 9223372036854775794, {}),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "NaN", {}),
        ("DCGM_FI_DEV_GPU_TEMP", 99, {}),
    ],
)
def test_what_each_metric_means(exporter, name, value, expected) -> None:
    first = "" if name == REMAP else metric(REMAP, 0)
    exporter.text = first + metric(name, value)
    signals = source(exporter).look()
    assert faults(signals) == expected
    assert all(s.scope.gpu == GPU for s in signals if isinstance(s, Fault))


def test_an_old_xid_stays_on_show_and_is_never_a_fault(exporter) -> None:
    exporter.text = metric(REMAP, 0) + metric("DCGM_FI_DEV_XID_ERRORS", 79)
    for _ in range(3):
        assert faults(source(exporter).look()) == {}


def test_gpus_of_other_nodes_are_not_ours(exporter) -> None:
    exporter.text = metric(REMAP, 0) + metric(REMAP, 1, "GPU-elsewhere")
    assert faults(source(exporter).look()) == {}


@pytest.mark.parametrize(
    "text", ["", metric("DCGM_FI_DEV_XID_ERRORS", 0), metric(REMAP, 0, "GPU-elsewhere")]
)
def test_m8_a_wanted_metric_that_is_absent_makes_the_source_unknown_and_not_healthy(
    exporter, text
) -> None:
    exporter.text = text
    assert REMAP in unavailable(source(exporter).look())


@pytest.mark.parametrize("code", [302, 404, 500, 503])
def test_m4_an_error_of_dcgm_is_of_that_source_alone(exporter, code) -> None:
    exporter.code = code
    assert "does not answer" in unavailable(source(exporter).look())
    assert exporter.asked == 1


def test_m4_an_exporter_that_is_not_there_is_told_with_where_it_was_looked_for(exporter) -> None:
    port = exporter.server_address[1]
    closed = DcgmExporter(
        f"http://127.0.0.1:{port + 1 if port < 65535 else 1}/metrics",
        gpus=lambda: (GPU,),
        branch=lambda: None,
        sink=lambda *_: None,
        alarm=Wakeup(),
        timeout=1.0,
    )
    text = unavailable(closed.look())
    assert "dcgm_url" in text
    assert "127.0.0.1" in text


@pytest.mark.parametrize("text", ["<html>hello</html>", "\x00\xff", '{"a": 1}'])
def test_an_answer_that_is_no_metrics_is_told(exporter, text) -> None:
    exporter.text = text
    assert "no metrics" in unavailable(source(exporter).look())


def test_an_answer_that_never_ends_is_given_up(exporter) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        while not over.wait(0.05):
            handler.wfile.write(b"# a line\n")
            handler.wfile.flush()

    exporter.drip = drip
    began = time.monotonic()
    assert "does not end" in unavailable(source(exporter, timeout=0.3).look())
    assert time.monotonic() - began < 3
    over.set()


def test_an_answer_that_never_begins_is_given_up(exporter) -> None:
    over = threading.Event()
    exporter.drip = lambda _: over.wait(10) and None
    began = time.monotonic()
    assert "does not answer" in unavailable(source(exporter, timeout=0.3).look())
    assert time.monotonic() - began < 3
    over.set()


def test_an_endless_answer_is_bounded_in_size(exporter, monkeypatch) -> None:
    monkeypatch.setattr("driver.observe.dcgm._LARGEST", 1 << 20)
    exporter.text = "# " + "x" * (2 << 20)
    assert "more than 1 MiB" in unavailable(source(exporter).look())
