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
from typing import Any, TypeVar

import grpc

from driver.kubelet.probe import is_probe
from driver.ports.kubelet import OP_ID, RpcMetrics, RpcOutcome, new_op_id

log = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")


class Observed(grpc.ServerInterceptor):
    def __init__(
        self,
        *,
        metrics: RpcMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._clock = clock

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Q, A] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Q, A] | None:
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        behaviour = handler.unary_unary
        method = handler_call_details.method.lstrip("/")
        probing = is_probe(handler_call_details.invocation_metadata)

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

        return grpc.unary_unary_rpc_method_handler(
            call, handler.request_deserializer, handler.response_serializer
        )

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
