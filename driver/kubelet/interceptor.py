"""What stands around every unary call, in the form that gRPC wants it.

Why it exists: an interceptor has to take a handler apart and put it together again, which says
nothing about what it is for. Streams pass by untouched.

Must not know what is done around a call.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import grpc

Q = TypeVar("Q")
A = TypeVar("A")
Behaviour = Callable[[Q, grpc.ServicerContext], A]


class AroundCalls(grpc.ServerInterceptor):
    @abstractmethod
    def around(
        self, behaviour: Behaviour[Q, A], details: grpc.HandlerCallDetails
    ) -> Behaviour[Q, A]:
        """`behaviour`, with something before or after it."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Q, A] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Q, A] | None:
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self.around(handler.unary_unary, handler_call_details),
            handler.request_deserializer,
            handler.response_serializer,
        )
