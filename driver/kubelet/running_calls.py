"""The kubelet's calls that run now, so that the end can wait for them before we leave the kubelet.

Why before: when the registration goes, the kubelet closes its connection, and every call on it
fails for its pod although the work is done. So a call runs until its answer has left, not only
until there is one. Calls that come meanwhile are served as well, and not waited for: where another
plugin runs on the node they go there.

Must not know what a call does. Streams are not waited for: they live as long as we do.
"""

from __future__ import annotations

import threading

import grpc

from driver.kubelet.interceptor import A, AroundCalls, Behaviour, Q


class RunningCalls(AroundCalls):
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[object] = set()

    def wait(self, timeout: float) -> bool:
        """Until the calls that run now have ended; whether they have, in `timeout` seconds."""
        with self._changed:
            now = set(self._running)
            return self._changed.wait_for(lambda: not now & self._running, timeout)

    def around(
        self,
        behaviour: Behaviour[Q, A],
        details: grpc.HandlerCallDetails,  # noqa: ARG002 - all calls alike
    ) -> Behaviour[Q, A]:
        def call(request: Q, context: grpc.ServicerContext) -> A:
            self._begin(context)
            return behaviour(request, context)

        return call

    def _begin(self, context: grpc.ServicerContext) -> None:
        """We are called back when the answer is written, or nobody is there any more to take it."""
        number = object()
        with self._changed:
            self._running.add(number)
        if not context.add_callback(lambda: self._end(number)):
            self._end(number)

    def _end(self, number: object) -> None:
        with self._changed:
            self._running.discard(number)
            self._changed.notify_all()
