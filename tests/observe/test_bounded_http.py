"""What a caller can send to the bounded server, and what it makes of it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.observe.bounded_http import Answer, HttpServer, Request


@pytest.fixture
def asked() -> list[Request]:
    return []


@pytest.fixture
def path(asked: list[Request], tmp_path: Path) -> Iterator[Path]:
    """Of a unix socket on which it is served."""

    def echo(request: Request) -> Answer:
        asked.append(request)
        return Answer(body=request.body or b"none")

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    server = HttpServer(listening, {"/a": {"GET": echo, "POST": echo, "DELETE": echo}}, name="t")
    server.start()
    yield tmp_path / "s"
    server.stop()


def send(
    path: Path,
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """A header that is empty is not sent."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(10)
    connection.sock.connect(str(path))
    connection.putrequest(method, target)
    for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
        if value:
            connection.putheader(name, value)
    connection.endheaders(body or None)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_unix_socket_serves_all_methods_with_query_and_body(
    path: Path, asked: list[Request]
) -> None:
    assert send(path, "POST", "/a?x=1&y=%2F", b"{}") == (200, "{}")
    assert send(path, "DELETE", "/a") == (200, "none")
    assert send(path, "GET", "/a?x=1&x=2") == (200, "none")
    assert asked == [
        Request(query={"x": "1", "y": "/"}, body=b"{}"),
        Request(query={}),
        Request(query={"x": "2"}),
    ]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "16385"}, 413),
        ({"Content-Length": "-1"}, 400),
        ({"Content-Length": "ten"}, 400),
        ({"Content-Length": "", "Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_a_body_that_is_too_long_or_of_unknown_length_is_not_read(
    path: Path, asked: list[Request], headers: dict[str, str], status: int
) -> None:
    assert send(path, "POST", "/a", headers=headers)[0] == status
    assert asked == []


def test_a_method_that_a_path_has_not_is_told_with_those_it_has(path: Path) -> None:
    assert send(path, "GET", "/b") == (404, "/a\n")
    assert send(path, "PATCH", "/a")[0] == 501


def connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(10)
    made.connect(str(path))
    return made


def test_who_connects_and_asks_for_nothing_makes_way_the_longest_silent_first(path: Path) -> None:
    silent = [connected(path) for _ in range(8)]
    assert send(path, "GET", "/a") == (200, "none")
    assert silent[0].recv(1) == b""
    asks_late = silent[-1]
    asks_late.sendall(b"GET /a HTTP/1.0\r\n\r\n")
    assert asks_late.recv(12) == b"HTTP/1.0 200"
    for _ in range(20):
        assert send(path, "GET", "/a") == (200, "none")
    for each in silent:
        each.close()


def test_who_has_asked_is_answered_and_one_too_many_is_closed_at_once(tmp_path: Path) -> None:
    inside, go = threading.Semaphore(0), threading.Event()

    def slow(_: Request) -> Answer:
        inside.release()
        go.wait(10)
        return Answer(body=b"done")

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    server = HttpServer(listening, {"/slow": {"GET": slow}}, name="t")
    server.start()
    busy = [connected(tmp_path / "s") for _ in range(8)]
    for each in busy:
        each.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        assert inside.acquire(timeout=10)
    with connected(tmp_path / "s") as one_more:
        assert one_more.recv(1) == b""
    go.set()
    assert all(each.recv(12) == b"HTTP/1.0 200" for each in busy)
    server.stop()
    for each in busy:
        each.close()
