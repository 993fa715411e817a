"""What the server is and which resource.k8s.io it serves; asked once, at start.

v1 comes with 1.34. The beta versions are understood for clusters that turned v1 off or are older;
there, what the driver offers depends on fields that may be missing, which reading back finds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from api.resource.codec import GROUP
from driver.core.errors import KubeNotFound
from driver.ports.kube import KubeApi, ServerVersion

PREFERRED: Final = ("v1", "v1beta2", "v1beta1")
"""Best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    version: ServerVersion
    resource_version: str
    """Which version of resource.k8s.io to speak."""


def discover(api: KubeApi) -> ServerFacts:
    version = api.server_version()
    served = api.served_versions(GROUP)
    return ServerFacts(version=version, resource_version=choose(served, server=version))


def choose(served: Collection[str], *, server: ServerVersion) -> str:
    for version in PREFERRED:
        if version in served:
            return version
    what_is = f"serves only {', '.join(sorted(served))}" if served else "does not serve it"
    raise KubeNotFound(
        f"Tessera needs Kubernetes >= 1.34 with {GROUP} in one of"
        f" {', '.join(PREFERRED)}; this server is {server} and {what_is}",
        what=f"discover {GROUP}",
    )
