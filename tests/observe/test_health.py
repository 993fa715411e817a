import logging

import pytest

from driver.observe.health import Readiness


def test_ready_is_when_every_condition_is_well():
    told: list[bool] = []
    readiness = Readiness("nvml", "published", on_change=told.append)
    assert readiness.trouble() == "nvml: not reached yet; published: not reached yet"
    readiness.well("nvml")
    readiness.failing("published", "the API server does not answer")
    assert readiness.trouble() == "published: the API server does not answer"
    readiness.well("published")
    assert readiness.trouble() == ""
    readiness.well("nvml")
    readiness.failing("nvml", "library is gone")
    readiness.failing("published", "no devices")
    assert told == [True, False]


def test_a_change_is_logged_once_however_often_it_is_set(caplog):
    caplog.set_level(logging.INFO)
    readiness = Readiness("nvml")
    for _ in range(3):
        readiness.failing("nvml", "driver not loaded")
    for _ in range(3):
        readiness.well("nvml")
    readiness.failing("nvml", "GPU lost")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "condition failing"),
        ("INFO", "condition well"),
        ("WARNING", "condition failing"),
    ]


def test_a_condition_nobody_declared_or_a_failure_without_a_reason_is_a_mistake():
    readiness = Readiness("nvml")
    with pytest.raises(ValueError, match="no condition 'nvlm'; known: nvml"):
        readiness.well("nvlm")
    with pytest.raises(ValueError, match="without a reason"):
        readiness.failing("nvml", "")
