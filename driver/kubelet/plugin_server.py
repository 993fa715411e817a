"""The node plugin as the kubelet sees it: one object with start, stop and probe.

Why it exists: the order is the contract. Services are served before the registration socket shows
up; at the end that socket goes first, so that the kubelet sends nothing new while calls drain.

Must not know: claims, devices, or who asks for the stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from driver.kubelet.health_stream import MOST_STREAMS, HealthStreams, health_services
from driver.kubelet.observed import Observed
from driver.kubelet.probe import probe
from driver.kubelet.registration import Registration, RegistrationStatus
from driver.kubelet.running_calls import RunningCalls
from driver.kubelet.server import UnixServer
from driver.kubelet.services import dra_services
from driver.kubelet.sockets import (
    SocketPaths,
    check_directory,
    make_private,
    remove_dead,
    socket_paths,
)
from driver.ports.kubelet import ClaimService, HealthFeed, RpcMetrics

log = logging.getLogger(__name__)

SERVICE_WORKERS: Final = 64
"""Started as they are needed. Some of them may wait for long (`driver.plugin.preparing.claims` says
how many): the calls that they wait for, and probes, must find one that is free.
"""
REGISTRATION_WORKERS: Final = 2
"""Of their own: GetInfo has one second, also while all service workers are busy."""

REGISTRATION_GRACE: Final = 1.0


class KubeletServer:
    """`plugin_dir` is private to this driver and, as all paths, the same here and on the host.

    `patience`: seconds from GetInfo to a successful registration before the registration socket is
    made anew. `on_fatal` is called, from a thread of ours, with what keeps us from doing that.
    Without `health` no health service is served, nor advertised.
    """

    def __init__(
        self,
        *,
        driver_name: str,
        plugin_dir: Path,
        registrar_dir: Path,
        service: ClaimService,
        health: HealthFeed | None = None,
        pod_uid: str = "",
        metrics: RpcMetrics | None = None,
        patience: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        on_fatal: Callable[[Exception], None] = lambda _: None,
        on_status: Callable[[RegistrationStatus], None] = lambda _: None,
    ) -> None:
        self._driver_name = driver_name
        self._plugin_dir = plugin_dir
        self._registrar_dir = registrar_dir
        self._paths = socket_paths(
            driver=driver_name,
            plugin_dir=plugin_dir,
            registrar_dir=registrar_dir,
            pod_uid=pod_uid,
        )
        self._observed = Observed(metrics=metrics, clock=clock)
        self._running = RunningCalls()
        self._streams = HealthStreams(health) if health is not None else None
        services = (
            *dra_services(service),
            *(health_services(self._streams) if self._streams is not None else ()),
        )
        self._service = UnixServer(
            self._paths.service,
            services,
            # A stream holds a worker for as long as it lives; calls keep theirs.
            workers=SERVICE_WORKERS + (MOST_STREAMS if self._streams is not None else 0),
            interceptors=(self._running, self._observed),
        )
        self._registration = Registration(
            driver_name=driver_name,
            endpoint=self._paths.service,
            versions=tuple(s.advertised for s in services if s.advertised is not None),
            patience=patience,
            clock=clock,
            on_status=on_status,
        )
        self._registrar: UnixServer | None = None
        self._on_fatal = on_fatal
        self._started = False
        self._keeper = threading.Thread(
            target=self._keep_registered, name="kubelet-registration", daemon=True
        )

    @property
    def paths(self) -> SocketPaths:
        return self._paths

    @property
    def status(self) -> RegistrationStatus:
        return self._registration.status

    def wait_registered(self, timeout: float | None = None) -> bool:
        """True once the kubelet has registered us; False after `timeout` seconds or a stop."""
        return self._registration.wait_registered(timeout)

    def start(self) -> None:
        """Serve, then show up. On an error nothing is left behind. Once per object."""
        check_directory("plugin directory", self._plugin_dir)
        check_directory("registrar directory", self._registrar_dir)
        make_private("plugin directory", self._plugin_dir)
        remove_dead(
            driver=self._driver_name,
            plugin_dir=self._plugin_dir,
            registrar_dir=self._registrar_dir,
        )
        try:
            self._service.start()
            self._open_registration()
        except BaseException:
            self._service.stop(0)
            raise
        self._started = True
        self._keeper.start()

    def drain(self, seconds: float) -> bool:
        """Until the calls that run now are answered: the kubelet cuts them off when we leave it.
        Whether they are, in so many seconds.
        """
        return self._running.wait(seconds)

    def stop(self, grace: float) -> bool:
        """Leave the kubelet, give running calls `grace` seconds. True: none is left running."""
        self._registration.close()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()
        if self._registrar is not None:
            self._registrar.stop(REGISTRATION_GRACE)
            self._registrar = None
        if self._streams is not None:
            self._streams.close()
        return self._service.stop(grace)

    def probe(self, *, timeout: float = 2.0) -> str | None:
        """None if both sockets answer within `timeout` seconds each, else what is wrong. Before
        `start` nothing is: nobody is meant to reach us yet.
        """
        if not self._started:
            return None
        return probe(
            registration_socket=self._paths.registration,
            service_socket=self._paths.service,
            info=self._registration.info,
            timeout=timeout,
        )

    def _open_registration(self) -> None:
        registrar = UnixServer(
            self._paths.registration,
            (self._registration.service(),),
            workers=REGISTRATION_WORKERS,
            interceptors=(self._observed,),
        )
        # Before the socket shows up: the kubelet may ask in the same moment.
        self._registration.opened()
        try:
            registrar.start()
        except BaseException:
            registrar.stop(0)
            raise
        self._registrar = registrar

    def _keep_registered(self) -> None:
        try:
            while self._registration.overdue():
                log.warning(
                    "the kubelet asked for us but did not register us; making the socket anew",
                    extra={"kubelet_error": self._registration.status.error},
                )
                if self._registrar is not None:
                    self._registrar.stop(REGISTRATION_GRACE)
                    self._registrar = None
                self._open_registration()
        except Exception as error:
            log.exception("the registration socket cannot be made anew")
            self._on_fatal(error)
