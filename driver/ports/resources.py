"""The kinds that Tessera reads or writes, each at the one version we speak.

resource.k8s.io is served as v1 since 1.34; its kinds are functions, for the version is discovered.
"""

from __future__ import annotations

from typing import Final

from api.resource.codec import GROUP
from driver.ports.kube import Resource

NODES: Final = Resource(group="", version="v1", plural="nodes", kind="Node")
PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
EVENTS: Final = Resource(
    group="events.k8s.io", version="v1", plural="events", kind="Event", namespaced=True
)
LEASES: Final = Resource(
    group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True
)
JOBS: Final = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True)


def resource_slices(version: str = "v1") -> Resource:
    return Resource(group=GROUP, version=version, plural="resourceslices", kind="ResourceSlice")


def resource_claims(version: str = "v1") -> Resource:
    return Resource(
        group=GROUP,
        version=version,
        plural="resourceclaims",
        kind="ResourceClaim",
        namespaced=True,
    )


def device_classes(version: str = "v1") -> Resource:
    return Resource(group=GROUP, version=version, plural="deviceclasses", kind="DeviceClass")


def device_taint_rules(version: str = "v1") -> Resource:
    """v1 since 1.37; before that a beta or alpha API that is off by default."""
    return Resource(group=GROUP, version=version, plural="devicetaintrules", kind="DeviceTaintRule")
