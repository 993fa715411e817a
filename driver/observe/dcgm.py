"""Asks a dcgm-exporter for what it shows, time after time.

Why it exists: where DCGM runs, it is a second witness of a GPU's health. It may be slow, away, of
another version or somebody else's program: whatever it does is an answer within bounds of time and
size, or a reason.

Must not know what a metric means; `driver.core.health.readings.dcgm` does.
"""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import IO, Final

from prometheus_client.parser import text_string_to_metric_families

from driver.core.errors import TesseraError
from driver.core.health.readings.dcgm import Sample, weigh_dcgm, weigh_dcgm_failure
from driver.core.health.signals import Signal
from driver.core.ids import GpuUuid
from driver.ports.health import Alarm, Sink

_LARGEST: Final = 16 << 20
_CHUNK: Final = 1 << 16
_UUID_LABELS: Final = ("UUID", "uuid")


class DcgmError(TesseraError):
    """The exporter did not answer, or not with metrics."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """It is asked where we were told to ask, and nowhere else."""

    def redirect_request(
        self,
        req: urllib.request.Request,  # noqa: ARG002
        fp: IO[bytes],  # noqa: ARG002
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: http.client.HTTPMessage,  # noqa: ARG002
        newurl: str,  # noqa: ARG002
    ) -> None:
        return None


class DcgmExporter:
    """Implements `driver.ports.health.HealthSource`."""

    name = "dcgm"

    def __init__(
        self,
        url: str,
        *,
        gpus: Callable[[], Iterable[GpuUuid]],
        branch: Callable[[], int | None],
        sink: Sink,
        alarm: Alarm,
        period: float = 15.0,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`gpus`: of this node; `branch`: the driver's; `period`, `timeout`: seconds."""
        self._url = url
        self._gpus = gpus
        self._branch = branch
        self._sink = sink
        self._alarm = alarm
        self._period = period
        self._timeout = timeout
        self._clock = clock
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._sink(*self.look())
            self._alarm.wait(self._period)

    def look(self) -> list[Signal]:
        try:
            samples = _samples(self._scrape())
        except DcgmError as error:
            return weigh_dcgm_failure(str(error), self._clock())
        return weigh_dcgm(samples, self._gpus(), branch=self._branch(), at=self._clock())

    def _scrape(self) -> str:
        deadline = time.monotonic() + self._timeout
        found = bytearray()
        try:
            with self._opener.open(self._url, timeout=self._timeout) as answer:
                while chunk := answer.read1(_CHUNK):
                    found += chunk
                    if len(found) > _LARGEST:
                        raise DcgmError(f"{self._url} gives more than {_LARGEST >> 20} MiB")
                    if time.monotonic() > deadline:
                        raise DcgmError(f"{self._url} does not end in {self._timeout:g} s")
        except (OSError, http.client.HTTPException, urllib.error.URLError) as error:
            reason = getattr(error, "reason", None) or error
            raise DcgmError(f"{self._url} does not answer: {reason}; check dcgm_url") from error
        return found.decode("utf-8", "replace")


def _samples(text: str) -> list[Sample]:
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise DcgmError(f"the answer is no metrics: {error}") from error
    return [
        Sample(metric=each.name, gpu=GpuUuid(gpu), value=each.value)
        for family in families
        for each in family.samples
        if (gpu := next((v for k in _UUID_LABELS if (v := each.labels.get(k))), None))
    ]
