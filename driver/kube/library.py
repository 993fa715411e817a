"""Ways to the API server that the client library knows best: kubeconfigs and proxies.

Why a module of its own, imported when it is needed: the library cannot be imported in part, and
costs 8 MiB that a plugin in a pod, which needs none of it, would keep for as long as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader

from driver.core.errors import ConfigError
from driver.kube.access import Access, NoCredentials


def from_kubeconfig(path: str, context: str, *, origin: str) -> Access:
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
    return _access(configuration)


def from_pod(environ: Mapping[str, str], folder: Path) -> Access:
    """Through the proxy that the process's environment names. NoCredentials."""
    configuration = Configuration()
    loader = InClusterConfigLoader(
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        environ=environ,
    )
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise NoCredentials(str(error)) from error
    return _access(configuration)


def _access(configuration: Configuration) -> Access:
    """Tokens are refreshed by the library when it is asked for them."""
    configuration.retries = False
    configuration.keep_alive = True

    def credentials() -> Mapping[str, str]:
        try:
            settings = configuration.auth_settings()
        except (ConfigException, OSError) as error:
            raise NoCredentials(str(error)) from error
        return {entry["key"]: entry["value"] for entry in settings.values() if entry["value"]}

    return Access(
        host=configuration.host,
        connections=RESTClientObject(configuration).pool_manager,
        credentials=credentials,
    )
