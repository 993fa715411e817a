import io
import json
import logging

import pytest

from driver.observe.logs import Log, operation, setup
from driver.ports.kubelet import OP_ID


@pytest.fixture
def lines():
    """Set up logging; the result reads back what was logged."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()

    def start(form="json", level="debug"):
        setup(level=level, form=form, stream=stream)
        if form == "text":
            return lambda: stream.getvalue().splitlines()
        return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]

    yield start
    logging.captureWarnings(capture=False)
    root.handlers[:] = before
    root.setLevel(level)


log = Log("tessera.test")


def fail(text):
    raise ValueError(text)


def test_a_line_is_an_event_with_fields_under_their_own_names(lines):
    read = lines()
    log.info("claim prepared", claim="ns/a", name="x", message="y", level=3, devices=["gpu-1"])
    (line,) = read()
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "tessera.test",
        "event": "claim prepared",
        "claim": "ns/a",
        "name": "x",
        "message": "y",
        "field_level": 3,
        "devices": ["gpu-1"],
    }


def test_fields_of_the_standard_library_look_the_same(lines):
    read = lines()
    logging.getLogger("x").warning("call %s", "Prepare", extra={"seconds": 0.5, "op_id": "beef"})
    (line,) = read()
    assert (line["event"], line["seconds"], line["op_id"]) == ("call Prepare", 0.5, "beef")


def test_all_lines_of_an_operation_carry_its_id_and_no_other_line_does(lines):
    read = lines()
    log.info("before")
    with operation() as first:
        log.info("inside")
    with operation() as second:
        logging.getLogger("lib").info("inside another")
    log.info("after")
    assert [line.get("op_id") for line in read()] == [None, first, second, None]
    assert first != second
    assert OP_ID.get(None) is None


def test_a_percent_sign_in_an_event_is_text(lines):
    read = lines()
    log.info("100% done %s")
    assert read()[0]["event"] == "100% done %s"


def test_what_is_below_the_level_is_not_written(lines):
    read = lines(level="warning")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line["event"] for line in read()] == ["c", "d"]


def test_secrets_are_blanked_by_name_and_by_form(lines):
    read = lines()
    log.info("got Authorization: Bearer abc.def-g", api_token="t0p", reason="header bearer xyz")
    try:
        fail("Bearer hunter2")
    except ValueError as error:
        log.exception("failed", error=error)
    text = json.dumps(read())
    for secret in ("abc.def-g", "t0p", "xyz", "hunter2"):
        assert secret not in text
    assert text.count("[redacted]") == 6


def test_an_exception_brings_its_traceback_in_one_line(lines):
    read = lines()
    try:
        fail("broken")
    except ValueError as error:
        log.exception("it failed", error=error)
    (line,) = read()
    assert line["error"] == "ValueError: broken"
    assert line["traceback"].startswith("Traceback")
    assert "test_logs.py" in line["traceback"]


def test_a_value_that_json_does_not_know_is_written_as_text(lines):
    read = lines()
    log.info("x", path=frozenset({1}))
    assert read()[0]["path"] == "frozenset({1})"


def test_a_text_line_cannot_be_forged_by_a_value(lines):
    read = lines(form="text")
    log.info("two\nlines", claim="ns/a", reason='say "x"=1\nlevel=error', count=2, plain="a-b")
    (line,) = read()
    head, rest = line.split(" two\\nlines ")
    assert head.split()[1:] == ["info", "tessera.test"]
    assert rest == r'claim=ns/a reason="say \"x\"=1\nlevel=error" count=2 plain=a-b'
