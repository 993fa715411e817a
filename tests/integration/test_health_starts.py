"""What happened to the GPUs while no plugin ran is found by the one that starts."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from hack.testbed import Testbed
from tests.integration.test_health import QUICK, condition, of_gpu, taints, until, xid

pytestmark = pytest.mark.timeout(120)

TIMEOUT = "46, pid=7, name=python3, GPU timeout"


def crashed(bed: Testbed) -> None:
    """A plugin that knew the GPUs has died."""
    bed.start_plugin(*QUICK)
    until(bed, lambda: condition(bed).get("status") == "True")
    bed.stop_plugin(signal.SIGKILL)


def named(bed: Testbed, uuid: str) -> bool:
    return uuid in condition(bed).get("message", "")


def test_d3_a_fault_that_came_while_no_plugin_ran_withholds_its_gpu(bed: Testbed) -> None:
    crashed(bed)
    xid(bed, 0, TIMEOUT)
    bed.start_plugin(*QUICK)
    until(bed, lambda: taints(bed).keys() == of_gpu(bed, 0))
    assert {t["fault"] for t in taints(bed).values()} == {"xid-46"}


def test_d3_so_it_is_while_nvml_hangs_when_the_plugin_starts(bed: Testbed) -> None:
    crashed(bed)
    xid(bed, 0, TIMEOUT)
    with bed.machine.rule("nvmlInit*", delay_ms=60_000):
        bed.start_plugin(*QUICK, wait=False)
        until(bed, lambda: condition(bed).get("status") == "False")
        message = condition(bed)["message"]
    assert message.startswith(f"1 of 2 GPUs are ready; {bed.machine.gpu(0).uuid}: xid-46")


def test_d20_gpus_that_were_lost_while_no_plugin_ran_are_missed_by_name(bed: Testbed) -> None:
    bed.start_plugin(*QUICK)
    until(bed, lambda: condition(bed).get("status") == "True")
    for slot in (1, 0):
        bed.stop_plugin(signal.SIGKILL)
        bed.machine.gpu(slot).unplug()
        bed.start_plugin(*QUICK, wait=False)
        until(bed, partial(named, bed, bed.machine.gpu(slot).uuid))
        assert condition(bed)["status"] == "False"
        assert condition(bed)["message"].startswith(f"{slot} of 2 GPUs are ready")
