"""Around every RPC: an operation id, one log line, one observation.

Why it exists: what the kubelet asked, how long it took and what came of it must be visible for each
call, in the same words for every method, without any handler doing it.

Must not know: what the methods do. It looks at `claims` of a message because the DRA messages of
every version have it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from driver.kubelet.interceptor import A, AroundCalls, Behaviour, Q
from driver.kubelet.probe import is_probe
from driver.ports.kubelet import OP_ID, RpcMetrics, RpcOutcome, new_op_id

log = logging.getLogger(__name__)


class Observed(AroundCalls):
    def __init__(
        self,
        *,
        metrics: RpcMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._clock = clock

    def around(
        self, behaviour: Behaviour[Q, A], details: grpc.HandlerCallDetails
    ) -> Behaviour[Q, A]:
        method = details.method.lstrip("/")
        probing = is_probe(details.invocation_metadata)

        def call(request: Q, context: grpc.ServicerContext) -> A:
            token = OP_ID.set(new_op_id())
            began = self._clock()
            outcome: RpcOutcome = "error"
            failed: dict[str, str] = {}
            try:
                answer = behaviour(request, context)
                failed = _failed(answer)
                outcome = "claim_error" if failed else "ok"
                return answer
            finally:
                seconds = self._clock() - began
                self._report(method, request, seconds, outcome, failed, probing=probing)
                OP_ID.reset(token)

        return call

    def _report(
        self,
        method: str,
        request: object,
        seconds: float,
        outcome: RpcOutcome,
        failed: dict[str, str],
        *,
        probing: bool,
    ) -> None:
        if self._metrics is not None and not probing:
            self._metrics.observe(method, seconds, outcome)
        level = logging.DEBUG if probing else logging.INFO if outcome == "ok" else logging.WARNING
        log.log(
            level,
            "kubelet call %s: %s",
            method,
            outcome,
            extra={
                "op_id": OP_ID.get(),
                "method": method,
                "claims": _claims(request),
                "seconds": round(seconds, 6),
                "outcome": outcome,
                "failed": failed,
            },
        )


def _claims(request: Any) -> list[str]:
    return [f"{c.namespace}/{c.name} ({c.uid})" for c in getattr(request, "claims", ())]


def _failed(answer: Any) -> dict[str, str]:
    return {uid: entry.error for uid, entry in getattr(answer, "claims", {}).items() if entry.error}
