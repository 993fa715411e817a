"""The kernel's log waits for the GPUs, and for NVML that hangs it does not wait long."""

from __future__ import annotations

import threading

from driver.plugin.health.placing import LONGEST, PATIENCE, Placing
from driver.plugin.supervise import Wakeup
from tests.plugin.health.shell import MemoryStore, Shell


class Waiting(Wakeup):
    """Time passes in it; `after` so many seconds something happens."""

    def __init__(self, shell: Shell, after: float = 1e9) -> None:
        super().__init__()
        self.shell = shell
        self.at = shell.now + after

    def wait(self, timeout: float | None) -> bool:
        assert timeout is not None
        if self.shell.now < self.at <= self.shell.now + timeout:
            self.shell.now = self.at
            self.shell.find(*self.shell.gpus)
            return True
        self.shell.now += timeout
        return False


def waited(shell: Shell, after: float = 1e9) -> tuple[float, Placing]:
    began = shell.now
    placing = Placing(
        shell.hardware, shell.custody, wakeup=Waiting(shell, after), uptime=shell.uptime
    )
    placing.wait(threading.Event())
    return shell.now - began, placing


def restarted() -> Shell:
    store = MemoryStore()
    Shell(store=store)
    return Shell(store=store, known=False)


def test_the_log_is_read_as_soon_as_the_gpus_were() -> None:
    assert waited(restarted(), after=2)[0] == 2
    assert waited(Shell(known=False), after=20)[0] == 20
    assert waited(Shell())[0] == 0


def test_where_nvml_hangs_the_gpus_from_before_our_start_do_after_a_moment() -> None:
    seconds, placing = waited(restarted())
    assert seconds == PATIENCE
    assert placing.keeps()


def test_on_a_node_that_never_had_gpus_the_log_is_read_and_its_place_not_kept() -> None:
    shell = Shell(known=False)
    seconds, placing = waited(shell)
    assert seconds == LONGEST
    assert not placing.keeps()
    shell.find(*shell.gpus)
    assert placing.keeps()


def test_what_is_read_after_the_lead_was_let_go_of_is_not_done_with() -> None:
    shell = Shell()
    placing = waited(shell)[1]
    assert placing.keeps()
    shell.custody.follow()
    assert not placing.keeps()
