"""The registration service: tells the kubelet who we are and remembers what it thinks of us.

Why it exists: GetInfo has one second, and an error out of NotifyRegistrationStatus costs the
registration; so both only read and write a few fields and can neither wait nor fail.

Must not know: the DRA service, sockets, or how a socket is made anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from api.kubelet.registration.v1 import registration_pb2 as pb
from driver.kubelet import handshake
from driver.kubelet.methods import Service, Unary
from driver.kubelet.probe import is_probe

log = logging.getLogger(__name__)

PLUGIN_TYPE: Final = "DRAPlugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationStatus:
    """`error`: the kubelet's newest complaint; empty once it has registered us."""

    registered: bool
    error: str


class Registration:
    def __init__(
        self,
        *,
        driver_name: str,
        endpoint: Path,
        versions: tuple[str, ...],
        patience: float,
        clock: Callable[[], float],
        on_status: Callable[[RegistrationStatus], None] = lambda _: None,
    ) -> None:
        """`on_status` hears what the kubelet answered; it must be quick and must not raise."""
        self._info = pb.PluginInfo(
            type=PLUGIN_TYPE,
            name=driver_name,
            endpoint=str(endpoint),
            supported_versions=versions,
        )
        self._patience = patience
        self._clock = clock
        self._on_status = on_status
        self._changed = threading.Condition()
        self._handshake = handshake.Handshake(since=clock())
        self._closed = False

    @property
    def info(self) -> pb.PluginInfo:
        return self._info

    @property
    def status(self) -> RegistrationStatus:
        with self._changed:
            return RegistrationStatus(
                registered=self._handshake.registered, error=self._handshake.error
            )

    def wait_registered(self, timeout: float | None = None) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._handshake.registered or self._closed, timeout)
            return self._handshake.registered

    def opened(self) -> None:
        """The socket is there (again); patience starts now."""
        with self._changed:
            self._handshake = handshake.recreated(self._handshake, now=self._clock())
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def overdue(self) -> bool:
        """Wait until the socket must be made anew; False once closed. For one owning thread."""
        with self._changed:
            while not self._closed:
                match handshake.decide(self._handshake, patience=self._patience, now=self._clock()):
                    case handshake.Recreate():
                        return True
                    case handshake.Unseen():
                        self._handshake = handshake.missed(self._handshake)
                        log.warning(
                            "the kubelet has not asked for the registration socket for %.0f s; "
                            "is the registrar directory the one of the kubelet's --root-dir?",
                            self._patience,
                        )
                    case handshake.Wait(seconds):
                        self._changed.wait(seconds)
            return False

    def service(self) -> Service:
        return Service(
            descriptor=pb.DESCRIPTOR.services_by_name["Registration"],
            methods=(
                Unary(
                    name="GetInfo",
                    request=pb.InfoRequest,
                    response=pb.PluginInfo,
                    call=self._get_info,
                ),
                Unary(
                    name="NotifyRegistrationStatus",
                    request=pb.RegistrationStatus,
                    response=pb.RegistrationStatusResponse,
                    call=self._notify,
                ),
            ),
        )

    def _get_info(self, _: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:
        if not is_probe(context.invocation_metadata()):
            with self._changed:
                self._handshake = handshake.info_asked(self._handshake, now=self._clock())
                self._changed.notify_all()
        return self._info

    def _notify(
        self, request: pb.RegistrationStatus, _: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        with self._changed:
            self._handshake = handshake.notified(
                self._handshake,
                registered=request.plugin_registered,
                error=request.error,
                now=self._clock(),
            )
            self._changed.notify_all()
        if request.plugin_registered:
            log.info("registered with the kubelet")
        else:
            log.error("the kubelet refused the registration: %s", request.error)
        self._on_status(self.status)
        return pb.RegistrationStatusResponse()
