"""Find the API server and the credentials: what was asked for, else the pod's own, else the user's.

Tokens in files are read again (every minute in a pod), so a client that lives for weeks needs
nothing more. The client library is loaded where its knowledge is needed: see `library.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from driver.core.errors import ConfigError
from driver.kube.access import Access, FileToken, NoCredentials, trusting

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
_PORT_VARIABLE: Final = "KUBERNETES_SERVICE_PORT"
_PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def login(
    *,
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    home: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Access:
    """`kubeconfig` (the flag) wins over KUBECONFIG, that over the pod, that over ~/.kube/config."""
    if kubeconfig:
        return _from_file(kubeconfig, context, origin="the kubeconfig setting")
    if named := environ.get("KUBECONFIG", ""):
        return _from_file(named, context, origin="KUBECONFIG")
    if environ.get(_HOST_VARIABLE):
        if context:
            raise ConfigError(
                f"context {context!r} is one of a kubeconfig, and in a pod its service account is"
                " used; name a kubeconfig file as well, or leave the context out"
            )
        return _from_pod(environ, service_account, clock)
    usual = (home or Path.home()) / ".kube" / "config"
    if usual.is_file():
        return _from_file(str(usual), context, origin="the usual place")
    raise ConfigError(
        f"no way to the Kubernetes API: no kubeconfig setting, KUBECONFIG and {_HOST_VARIABLE} are"
        f" not set, and {usual} does not exist; run in a pod, or name a kubeconfig file"
    )


def _from_pod(environ: Mapping[str, str], folder: Path, clock: Callable[[], float]) -> Access:
    try:
        if any(environ.get(name) for name in _PROXIES):
            from driver.kube.library import from_pod  # noqa: PLC0415 - see the module's docstring

            return from_pod(environ, folder)
        return _directly(environ, folder, clock)
    except NoCredentials as error:
        raise ConfigError(
            f"{_HOST_VARIABLE} is set, but the service account in {folder} cannot be used: {error}."
            " Check automountServiceAccountToken, or name a kubeconfig file"
        ) from error


def _directly(environ: Mapping[str, str], folder: Path, clock: Callable[[], float]) -> Access:
    host, port = environ[_HOST_VARIABLE], environ.get(_PORT_VARIABLE)
    if not port:
        raise NoCredentials(f"{_PORT_VARIABLE} is not set")
    token, authority = FileToken(folder / "token", clock), folder / "ca.crt"
    try:
        empty = not authority.read_bytes()
    except OSError as error:
        raise NoCredentials(str(error)) from error
    if empty:
        raise NoCredentials(f"{authority} is empty")
    bracketed = f"[{host}]" if ":" in host else host
    return Access(
        host=f"https://{bracketed}:{port}",
        connections=trusting(authority),
        credentials=token.headers,
    )


def _from_file(path: str, context: str, *, origin: str) -> Access:
    from driver.kube.library import from_kubeconfig  # noqa: PLC0415 - see the module's docstring

    return from_kubeconfig(path, context, origin=origin)
