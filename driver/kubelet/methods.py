"""A typed table of the methods that a gRPC service has, in place of generated server code.

Why it exists: the generated code is untyped and ties us to one version of grpcio; a row per method
is shorter, and the same rows serve several versions of a service. Names come from the descriptors,
and a table that does not match its service is refused when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Generic[Q, A]):
    """One row: a request comes, an answer goes."""

    name: str
    request: type[Q]
    response: type[A]
    call: Callable[[Q, grpc.ServicerContext], A]

    def handler(self) -> grpc.RpcMethodHandler[Q, A]:
        return grpc.unary_unary_rpc_method_handler(
            self.call,
            request_deserializer=self.request.FromString,
            response_serializer=self.response.SerializeToString,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Generic[Q, A]):
    """One row: a request comes, answers go until the caller or the server has enough."""

    name: str
    request: type[Q]
    response: type[A]
    call: Callable[[Q, grpc.ServicerContext], Iterator[A]]

    def handler(self) -> grpc.RpcMethodHandler[Q, A]:
        return grpc.unary_stream_rpc_method_handler(
            self.call,
            request_deserializer=self.request.FromString,
            response_serializer=self.response.SerializeToString,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """`advertised`: how registration names this service; None where it does not."""

    descriptor: ServiceDescriptor
    methods: tuple[Unary[Any, Any] | Streaming[Any, Any], ...]
    advertised: str | None = None

    def __post_init__(self) -> None:
        declared = {
            m.name: (m.input_type.full_name, m.output_type.full_name)
            for m in self.descriptor.methods
        }
        table = {
            m.name: (m.request.DESCRIPTOR.full_name, m.response.DESCRIPTOR.full_name)
            for m in self.methods
        }
        if table != declared:
            raise ValueError(f"{self.descriptor.full_name} declares {declared}, not {table}")

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            self.descriptor.full_name, {m.name: m.handler() for m in self.methods}
        )
