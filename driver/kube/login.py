"""Find the API server and the credentials: what was asked for, else the pod's own, else the user's.

Tokens in files are read again by the library (every minute in a pod), so a client that lives for
weeks needs nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader

from driver.core.errors import ConfigError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"


def login(
    *,
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    home: Path | None = None,
) -> Configuration:
    """`kubeconfig` (the flag) wins over KUBECONFIG, that over the pod, that over ~/.kube/config."""
    if kubeconfig:
        return _from_file(kubeconfig, context, origin="the kubeconfig setting")
    if named := environ.get("KUBECONFIG", ""):
        return _from_file(named, context, origin="KUBECONFIG")
    if environ.get(_HOST_VARIABLE):
        return _from_pod(environ, service_account)
    usual = (home or Path.home()) / ".kube" / "config"
    if usual.is_file():
        return _from_file(str(usual), context, origin="the usual place")
    raise ConfigError(
        f"no way to the Kubernetes API: no kubeconfig setting, KUBECONFIG and {_HOST_VARIABLE} are"
        f" not set, and {usual} does not exist; run in a pod, or name a kubeconfig file"
    )


def _from_pod(environ: Mapping[str, str], folder: Path) -> Configuration:
    configuration = Configuration()
    loader = InClusterConfigLoader(
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        environ=environ,
    )
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise ConfigError(
            f"{_HOST_VARIABLE} is set, but the service account in {folder} cannot be used: {error}"
            " Check automountServiceAccountToken, or name a kubeconfig file"
        ) from error
    return configuration


def _from_file(path: str, context: str, *, origin: str) -> Configuration:
    """`path` may be several files, joined as in PATH; they are merged."""
    configuration = Configuration()
    try:
        load_kube_config(
            config_file=path,
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, OSError, yaml.YAMLError, TypeError, KeyError) as error:
        raise ConfigError(
            f"the kubeconfig {path} (from {origin}) cannot be used: {error};"
            " check that it exists, is readable and has the context"
        ) from error
    return configuration
