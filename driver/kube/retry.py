"""Do it again while that can help, until a deadline or the end of the process.

Only errors that say so are retried: a conflict (the operation must read again itself) and an
unavailable server. What the server refuses it will refuse again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from driver.core.errors import KubeConflict, KubeError, KubeUnavailable
from driver.kube.backoff import Backoff

T = TypeVar("T")

HELPED_BY_WAITING: tuple[type[KubeError], ...] = (KubeConflict, KubeUnavailable)


def retry(
    operation: Callable[[], T],
    *,
    within: float,
    stopped: Callable[[float], bool],
    on: tuple[type[KubeError], ...] = HELPED_BY_WAITING,
    backoff: Backoff | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """`stopped(seconds)` waits and says whether to give up: `Event.wait` of the stop event.

    Gives up with the operation's last error, at once where the next attempt would begin more than
    `within` seconds after the first.
    """
    pauses = backoff or Backoff()
    deadline = clock() + within
    while True:
        try:
            return operation()
        except on as error:
            pause = pauses.next(at_least=error.retry_after)
            if clock() + pause > deadline or stopped(pause):
                raise
