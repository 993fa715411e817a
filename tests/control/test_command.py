"""The commands against a plugin that answers whatever a test wants."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from driver import cli
from driver.observe.bounded_http import Answer, HttpServer, Request

ACK = ("ack", "--gpu", "GPU-1", "--name", "xid-95", "--serial", "16", "--by", "ada")


class Plugin:
    """Answers everything alike, and notes what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str, Request]] = []
        self.answer = Answer(body=b"{}")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(folder / "control.sock"))
        listening.listen()
        paths = ("/v1/status", "/v1/explain", "/v1/ack", "/v1/release", "/v1/reset")
        methods = ("GET", "POST", "DELETE")
        routes = {p: {m: self._handler(m, p) for m in methods} for p in paths}
        self.server = HttpServer(listening, routes, name="plugin")
        self.server.start()

    def _handler(self, method: str, path: str) -> Callable[[Request], Answer]:
        def handle(request: Request) -> Answer:
            self.asked.append((method, path, request))
            return self.answer

        return handle

    def answers(self, content: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.answer = Answer(status=status, body=json.dumps(content).encode())

    def run(self, *arguments: str) -> int:
        return cli.main([*arguments, "--plugin-dir", str(self.folder)])


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Plugin]:
    made = Plugin(tmp_path)
    yield made
    made.server.stop()


def test_a_device_is_asked_for_by_name_and_a_whole_gpu_by_uuid(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.answers({"device": "gpu-1", "gpu": "GPU-1", "lines": ["ready", "claim a/b has gpu-1"]})
    assert plugin.run("explain", "gpu-1") == 0
    assert capsys.readouterr().out == "gpu-1: ready\n  claim a/b has gpu-1\n"
    plugin.answers({"device": None, "gpu": "GPU-1", "lines": ["ready"]})
    assert plugin.run("explain", "GPU-1") == 0
    assert capsys.readouterr().out == "GPU-1: ready\n"
    assert [dict(request.query) for *_, request in plugin.asked] == [
        {"device": "gpu-1"},
        {"gpu": "GPU-1"},
    ]


def test_an_acknowledgement_is_sent_whole(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.answers({"gpu": "GPU-1", "lines": ["withheld", "a line"]})
    assert plugin.run(*ACK) == 0
    assert capsys.readouterr().out == "GPU-1: acknowledged; now withheld\n  a line\n"
    ((method, path, request),) = plugin.asked
    assert (method, path) == ("POST", "/v1/ack")
    sent = {"gpu": "GPU-1", "name": "xid-95", "serial": "16", "by": "ada"}
    assert json.loads(request.body) == sent


def test_a_reset_is_told_of_several_gpus_at_once_and_each_is_answered_for(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.answers({"gpus": {"GPU-1": ["withheld", "a line"], "GPU-2": ["ready"]}})
    assert plugin.run("reset-done", "--gpu", "GPU-1", "--gpu", "GPU-2", "--by", "ada") == 0
    assert capsys.readouterr().out == (
        "GPU-1: noted as reset; now withheld\n  a line\nGPU-2: noted as reset; now ready\n"
    )
    ((method, path, request),) = plugin.asked
    assert (method, path) == ("POST", "/v1/reset")
    assert json.loads(request.body) == {"gpus": ["GPU-1", "GPU-2"], "by": "ada"}


def test_a_release_that_cannot_let_go_of_everything_has_failed(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.answers({"secondsLeft": 60, "held": False})
    assert plugin.run("release", "--seconds", "60") == 0
    assert "let go of for 60 s" in capsys.readouterr().out
    plugin.answers({"secondsLeft": 60, "held": True})
    assert plugin.run("release", "--seconds", "60") == 1
    assert "a GPU is still held" in capsys.readouterr().out
    assert [json.loads(request.body) for *_, request in plugin.asked] == [{"seconds": 60}] * 2
    plugin.answers({"ended": True})
    assert plugin.run("release", "--end") == 0
    assert plugin.asked[-1][:2] == ("DELETE", "/v1/release")


@pytest.mark.parametrize(
    ("status", "content", "code", "error"),
    [
        (HTTPStatus.CONFLICT, {"error": "needs a reset"}, 1, "tessera: needs a reset\n"),
        (HTTPStatus.NOT_FOUND, {"error": "no such GPU"}, 2, "tessera: no such GPU\n"),
        (HTTPStatus.BAD_REQUEST, {"error": "serial: empty"}, 2, "tessera: serial: empty\n"),
        (HTTPStatus.SERVICE_UNAVAILABLE, {}, 1, "HTTP 503, see the plugin's log"),
        (HTTPStatus.OK, ["what"], 1, "is no plugin of this version (HTTP 200)"),
    ],
)
def test_exit_codes_tell_a_refusal_from_a_wrong_question(
    plugin: Plugin,
    capsys: pytest.CaptureFixture[str],
    status: HTTPStatus,
    content: object,
    code: int,
    error: str,
) -> None:
    plugin.answers(content, status)
    assert plugin.run(*ACK) == code
    assert error in capsys.readouterr().err


def test_an_answer_that_is_no_json_is_not_shown(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.answer = Answer(status=HTTPStatus.NOT_FOUND, body=b"/metrics\n")
    assert plugin.run("status") == 1
    assert "use the command of the plugin's own image" in capsys.readouterr().err


@pytest.mark.parametrize("content", [{}, {"lines": []}, {"gpu": None, "lines": [], "held": 1}])
@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("explain", "gpu-1"),
        ACK,
        ("release", "--seconds", "9"),
        ("release", "--end"),
        ("reset-done", "--gpu", "GPU-1", "--by", "ada"),
    ],
)
def test_an_answer_of_another_version_is_no_traceback_and_half_of_it_is_not_shown(
    plugin: Plugin,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    content: dict[str, object],
) -> None:
    plugin.answers(content)
    assert plugin.run(*command) == 1
    shown = capsys.readouterr()
    assert (shown.out, "no plugin of this version" in shown.err) == ("", True), shown


def test_a_name_that_is_not_utf8_names_nothing(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.run("explain", "gpu-\udcff") == 2
    assert "is not UTF-8" in capsys.readouterr().err
    assert plugin.asked == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("release",), "one of the arguments --seconds --end is required"),
        (("release", "--seconds", "0"), "'0' is no whole number from 1 to 3600"),
        (("release", "--seconds", "3601"), "'3601' is no whole number"),
        (("release", "--seconds", "1", "--end"), "not allowed with"),
        (("ack", "--gpu", "GPU-1", "--name", "x", "--by", "me"), "--serial"),
        (("explain",), "DEVICE"),
        (("reset-done", "--gpu", "GPU-1"), "--by"),
        (("status", "--jsn"), "did you mean --json?"),
    ],
)
def test_a_command_line_that_is_wrong_asks_nothing(
    plugin: Plugin, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str
) -> None:
    assert cli.main(arguments) == 2
    assert error in capsys.readouterr().err
    assert plugin.asked == []


def test_without_a_folder_the_plugins_own_settings_say_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_KUBELET_PLUGINS_DIR", str(tmp_path))
    monkeypatch.setenv("TESSERA_DRIVER_NAME", "gpu.example.com")
    assert cli.main(["status"]) == 1
    assert f"{tmp_path}/gpu.example.com/control.sock: no plugin" in capsys.readouterr().err
    assert cli.main(["status", "--driver-name", "gpu.other.com"]) == 1
    assert f"{tmp_path}/gpu.other.com/control.sock: no plugin" in capsys.readouterr().err
