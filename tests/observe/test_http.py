import http.client
import socket
from threading import Event, Thread

import pytest

from driver.core.errors import ConfigError
from driver.observe.http import HealthServer
from driver.observe.metrics import CONTENT_TYPE, Metrics


class World:
    """What the checks say."""

    alive = ""
    ready = ""


@pytest.fixture
def world():
    return World()


def serve(world, endpoint=("127.0.0.1", 0), **options):
    checks = {"alive": lambda: world.alive, "ready": lambda: world.ready} | options
    return HealthServer(endpoint, metrics=Metrics(version="1"), metrics_type=CONTENT_TYPE, **checks)


@pytest.fixture
def server(world):
    server = serve(world)
    server.start()
    yield server
    server.stop()


def ask(server, path, method="GET", host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, server.port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/readyz?verbose"])
def test_a_check_without_trouble_is_ok(server, path):
    answer, body = ask(server, path)
    assert (answer.status, body) == (200, "ok\n")


def test_trouble_is_503_with_the_reason(server, world):
    world.ready = "nvml: driver not loaded"
    answer, body = ask(server, "/readyz")
    assert (answer.status, body) == (503, "nvml: driver not loaded\n")
    assert ask(server, "/healthz")[0].status == 200
    world.alive = "a thread died"
    assert ask(server, "/healthz")[0].status == 503


def test_metrics_are_served_with_their_type(server):
    answer, body = ask(server, "/metrics")
    assert answer.getheader("Content-Type") == CONTENT_TYPE
    assert "tessera_build_info" in body
    assert answer.getheader("Server") == "tessera"


def test_head_has_no_body_and_an_unknown_path_lists_the_known_ones(server):
    answer, body = ask(server, "/healthz", method="HEAD")
    assert (answer.status, body, answer.getheader("Content-Length")) == (200, "", "3")
    answer, body = ask(server, "/")
    assert (answer.status, body) == (404, "/healthz\n/readyz\n/metrics\n")
    assert ask(server, "/healthz", method="POST")[0].status == 405
    assert ask(server, "/healthz", method="PATCH")[0].status == 501


def test_a_check_that_raises_is_500_and_logged(world, caplog):
    def broken() -> str:
        raise ZeroDivisionError

    server = serve(world, ready=broken)
    server.start()
    answer, body = ask(server, "/readyz")
    server.stop()
    assert (answer.status, body) == (500, "see the log\n")
    assert "ZeroDivisionError" in caplog.text


def test_more_requests_than_the_limit_are_closed_at_once(world):
    entered, leave = [Event() for _ in range(8)], Event()
    free = iter(entered)

    def slow() -> str:
        next(free).set()
        leave.wait(30)
        return ""

    server = serve(world, alive=slow)
    server.start()
    answers: list[int] = []
    askers = [
        Thread(target=lambda: answers.append(ask(server, "/healthz")[0].status)) for _ in entered
    ]
    for asker in askers:
        asker.start()
    assert all(event.wait(30) for event in entered)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(server, "/readyz")
    leave.set()
    for asker in askers:
        asker.join()
    assert answers == [200] * 8
    assert ask(server, "/readyz")[0].status == 200
    server.stop()


def test_an_empty_host_answers_on_every_address(world):
    server = serve(world, ("", 0))
    server.start()
    assert ask(server, "/healthz")[0].status == 200
    if socket.has_dualstack_ipv6():
        assert ask(server, "/healthz", host="::1")[0].status == 200
    server.stop()


def test_an_address_in_use_is_a_configuration_error(server, world):
    with pytest.raises(ConfigError, match=f"http_address 127.0.0.1:{server.port} .*in use"):
        serve(world, ("127.0.0.1", server.port))


def test_after_stop_nothing_listens_and_no_thread_is_left(world):
    server = serve(world)
    server.start()
    port = server.port
    server.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    serve(world).stop()  # never started
