"""What an administrator may ask of the plugin on a node, and tell it: the routes of its socket.

    GET    /v1/status                        everything, as one document
    GET    /v1/explain?device=NAME|gpu=UUID  why it is what it is, in plain English
    POST   /v1/ack      {gpu, name, serial, by}
    POST   /v1/release  {seconds}
    DELETE /v1/release
    POST   /v1/reset    {gpus, by}           these GPUs were reset

Why it exists: evidence and hardware are held by the plugin's process alone. Reading is answered by
every plugin; what changes something only by the one that leads, since its evidence is the one that
counts. Answers are JSON; a refusal is {"error": one line that says what to do}.

Must not know sockets, or how judgements are come by.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driver.core.health.acknowledge import NotAcknowledged
from driver.core.health.explain import explain
from driver.core.health.items import Item
from driver.core.health.judge import READY, Judgement
from driver.core.health.reset_told import NotReset
from driver.core.health.signals import Acknowledged, ResetSeen
from driver.core.ids import DeviceName, GpuUuid
from driver.observe.bounded_http import Answer, Request, Routes
from driver.observe.logs import Log
from driver.plugin.control.facts import Facts
from driver.plugin.control.notes import notes
from driver.plugin.control.status import Document, document
from driver.plugin.recovering.recovery import Tell
from driver.plugin.release_window import ReleaseWindow
from driver.ports.events import Reason

log = Log(__name__)

_JSON: Final = "application/json"
_LONGEST_WINDOW: Final = 3600
"""Seconds. A window that nobody ends must not leave the GPUs unwatched for long."""
_Text = Annotated[str, Field(min_length=1, max_length=256)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Ack(_Body):
    gpu: _Text
    name: _Text
    serial: _Text
    by: _Text


class _Release(_Body):
    seconds: Annotated[int, Field(ge=1, le=_LONGEST_WINDOW)]


class _Reset(_Body):
    gpus: Annotated[list[_Text], Field(min_length=1, max_length=64)]
    by: _Text


_B = TypeVar("_B", bound=_Body)


class Witness(Protocol):
    """Takes a human's word. See `driver.plugin.health.custody.Custody`."""

    def acknowledge(self, wanted: Acknowledged) -> None: ...

    def reset_told(self, *told: ResetSeen) -> None: ...


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Control:
    """`facts`: what is known now. `tell`: an Event about the node."""

    def __init__(
        self,
        *,
        facts: Callable[[], Facts],
        evidence: Witness,
        window: ReleaseWindow,
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._facts = facts
        self._evidence = evidence
        self._window = window
        self._tell = tell
        self._clock = clock

    def routes(self) -> Routes:
        return {
            "/v1/status": {"GET": _answered(lambda _: document(self._facts()))},
            "/v1/explain": {"GET": _answered(self._explain)},
            "/v1/ack": {"POST": _answered(self._acknowledge)},
            "/v1/release": {
                "POST": _answered(self._release),
                "DELETE": _answered(lambda _: self._end()),
            },
            "/v1/reset": {"POST": _answered(self._reset)},
        }

    def _explain(self, request: Request) -> Document:
        facts = self._facts()
        match dict(request.query):
            case {"device": name, **rest} if not rest:
                device, gpu = _device(facts, name)
                judgement = facts.judgements.devices.get(device) or _of_gpu(facts, gpu)
            case {"gpu": uuid, **rest} if not rest:
                device, gpu = DeviceName(""), GpuUuid(uuid)
                if gpu not in _known_gpus(facts):
                    raise _unknown("GPU", uuid, [*_known_gpus(facts)])
                judgement = _of_gpu(facts, gpu)
            case _:
                raise _RefusedError(
                    HTTPStatus.BAD_REQUEST, "name one: device=NAME, or gpu=UUID of a whole GPU"
                )
        return {
            "device": device or None,
            "gpu": gpu,
            "state": judgement.state.value,
            "lines": [*explain(judgement), *_beside(facts, device, gpu)],
        }

    def _acknowledge(self, request: Request) -> Document:
        told = _parsed(_Ack, request)
        self._check_leads("acknowledge")
        wanted = Acknowledged(
            gpu=GpuUuid(told.gpu), name=told.name, serial=told.serial, by=told.by, at=self._clock()
        )
        facts = self._facts()
        if wanted.gpu not in (known := _known_gpus(facts)):
            raise _unknown("GPU", wanted.gpu, [*known])
        try:
            self._evidence.acknowledge(wanted)
        except NotAcknowledged as error:
            there = (i.scope.gpu == wanted.gpu and i.name == wanted.name for i in _open(facts))
            status = HTTPStatus.CONFLICT if any(there) else HTTPStatus.NOT_FOUND
            raise _RefusedError(status, str(error)) from error
        log.warning("fault acknowledged", gpu=told.gpu, name=told.name, by=told.by)
        judgement = _of_gpu(self._facts(), wanted.gpu)
        return {"gpu": told.gpu, "state": judgement.state.value, "lines": [*explain(judgement)]}

    def _release(self, request: Request) -> Document:
        told = _parsed(_Release, request)
        self._check_leads("release")
        self._window.open(told.seconds)
        return {"secondsLeft": round(self._window.left, 1), "held": self._window.held}

    def _end(self) -> Document:
        self._check_leads("release")
        return {"ended": self._window.end()}

    def _reset(self, request: Request) -> Document:
        told = _parsed(_Reset, request)
        self._check_leads("take in a reset")
        gpus, known = [GpuUuid(each) for each in told.gpus], _known_gpus(self._facts())
        for gpu in gpus:
            if gpu not in known:
                raise _unknown("GPU", gpu, [*known])
        at = self._window.free_at
        try:
            self._evidence.reset_told(*(ResetSeen(gpu=gpu, at=at, by=told.by) for gpu in gpus))
        except NotReset as error:
            raise _RefusedError(HTTPStatus.CONFLICT, str(error)) from error
        for gpu in gpus:
            log.warning("GPU was reset, as an operator says", gpu=gpu, by=told.by)
            self._tell(Reason.DEVICE_RESET, f"GPU {gpu}: was reset, as {told.by} says")
        facts = self._facts()
        return {"gpus": {gpu: [*explain(_of_gpu(facts, gpu))] for gpu in gpus}}

    def _check_leads(self, what: str) -> None:
        if not self._facts().leads:
            raise _RefusedError(
                HTTPStatus.CONFLICT,
                f"cannot {what}: another plugin pod of this node leads (it is being replaced?);"
                " ask again once it is gone",
            )


def _answered(act: Callable[[Request], Document]) -> Callable[[Request], Answer]:
    def handle(request: Request) -> Answer:
        try:
            return _json(HTTPStatus.OK, act(request))
        except _RefusedError as refused:
            return _json(refused.status, {"error": str(refused)})

    return handle


def _json(status: HTTPStatus, content: Document) -> Answer:
    return Answer(status=status, kind=_JSON, body=json.dumps(content).encode() + b"\n")


def _parsed(model: type[_B], request: Request) -> _B:
    try:
        return model.model_validate_json(request.body)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}"
            for each in error.errors(include_url=False)
        )
        raise _RefusedError(HTTPStatus.BAD_REQUEST, wrong) from error


def _device(facts: Facts, name: str) -> tuple[DeviceName, GpuUuid]:
    """A published device, or one that a claim still has, by name or by the partition's UUID."""
    devices = facts.inventory.devices if facts.inventory else {}
    known = {str(each): (each, device.gpu.uuid) for each, device in devices.items()}
    for entry in facts.entries.values():
        for holding in entry.holdings:
            known.setdefault(holding.device, (holding.device, holding.gpu))
            if holding.slot is not None:
                known[holding.uuid] = holding.device, holding.gpu
    if name not in known:
        raise _unknown("device", name, [*known])
    return known[name]


def _known_gpus(facts: Facts) -> set[GpuUuid]:
    return {*facts.judgements.gpus, *(facts.inventory.gpus if facts.inventory else ())}


def _open(facts: Facts) -> list[Item]:
    return [item for item in facts.evidence.items.values() if not item.passing]


def _unknown(kind: str, name: str, known: list[str]) -> _RefusedError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`tessera status --json` names all of them"
    return _RefusedError(HTTPStatus.NOT_FOUND, f"this node has no {kind} {name!r}; {hint}")


def _of_gpu(facts: Facts, gpu: GpuUuid) -> Judgement:
    return facts.judgements.gpus.get(gpu, READY)


def _beside(facts: Facts, device: DeviceName, gpu: GpuUuid) -> list[str]:
    """What is no matter of health, and yet says why nobody gets it."""
    lines = [*notes(facts, gpu, device or None)]
    if facts.release is not None:
        lines.append("a release window is open: nothing is prepared on this node until it ends")
    if facts.problem:
        lines.append(f"the hardware cannot be read now: {facts.problem}")
    lines += [
        f"claim {entry.namespace}/{entry.name} has {holding.device}"
        for entry in facts.entries.values()
        for holding in entry.holdings
        if holding.gpu == gpu and (not device or holding.device == device)
    ]
    return lines
