"""What goes wrong while a plugin is tortured: drawn at each of its steps and requests."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from driver.core.errors import KubeConflict, KubeError, KubeGone, KubeUnavailable
from driver.ports.kube import JsonObject, Resource
from tests.crash.faults import Fault, Kind, Steps, is_nvml
from tests.crash.runs import FILE_ERRORS, NVML_ERRORS
from tests.crash.story import Note
from tests.plugin.stubs import ClaimsApi

_API_ERRORS: tuple[KubeError, ...] = (
    KubeConflict("conflict", what="get", status=409),
    KubeGone("gone", what="get", status=410),
    KubeUnavailable("too many requests", what="get", status=429),
    KubeUnavailable("internal error", what="get", status=500),
    KubeUnavailable("no answer in time", what="get"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Chances of a step to fail or to be the last, and of a request to fail. `lasts`: of the next
    step to fail after one that did; a disk or a GPU that is ill fails in what undoes, too.
    """

    kill: float = 0.0
    fail: float = 0.0
    lasts: float = 0.0
    api: float = 0.0


WEATHERS = (
    Weather(),
    Weather(kill=0.03, api=0.1),
    Weather(fail=0.03, lasts=0.5, api=0.1),
    Weather(kill=0.01, fail=0.02, lasts=0.2, api=0.3),
)


class Dice(Steps):
    """Every step may be the faulty one. `note` is told each before it is done."""

    def __init__(self, random: Random, weather: Weather, note: Note) -> None:
        super().__init__(armed=True)
        self._random = random
        self._weather = weather
        self._note = note
        self._ill = {True: False, False: False}
        """Whether the last step failed: of NVML, and of files."""

    def _due(self, name: str) -> Fault | None:
        with self._lock:
            self.names.append(name)
            fault = self._drawn(name)
            self._note(f"{len(self.names) - 1} {name}" + (f": {fault}" if fault else ""))
            return fault

    def _drawn(self, name: str) -> Fault | None:
        weather, roll, at = self._weather, self._random.random(), len(self.names) - 1
        nvml = is_nvml(name)
        fail = weather.lasts if self._ill[nvml] else weather.fail
        self._ill[nvml] = False
        if roll < weather.kill:
            kind = self._random.choice((Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.TORN))
            return Fault(at=at, kind=kind)
        if roll < weather.kill + fail:
            self._ill[nvml] = True
            codes = NVML_ERRORS if nvml else FILE_ERRORS
            return Fault(at=at, kind=Kind.FAIL, code=self._random.choice(codes))
        return None


class FlakyApi(ClaimsApi):
    random: Random
    rate = 0.0

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject:
        if self.random.random() < self.rate:
            raise self.random.choice(_API_ERRORS)
        return super().get(resource, name, namespace=namespace)
