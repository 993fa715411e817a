"""The kinds that the server has, and which of their fields can be selected by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`versions`: all that can be served; `Settings.served` says which are."""

    group: str
    plural: str
    kind: str
    namespaced: bool = False
    status: bool = False
    versions: tuple[str, ...] = ("v1",)
    fields: tuple[str, ...] = ()


_RESOURCE = "resource.k8s.io"
_ALL = ("v1", "v1beta2", "v1beta1")

KINDS: tuple[Kind, ...] = (
    Kind(group="", plural="nodes", kind="Node", status=True, fields=("spec.unschedulable",)),
    Kind(
        group="",
        plural="pods",
        kind="Pod",
        namespaced=True,
        status=True,
        fields=("spec.nodeName", "status.phase"),
    ),
    Kind(group="", plural="events", kind="Event", namespaced=True),
    Kind(group="", plural="namespaces", kind="Namespace", status=True),
    Kind(group="events.k8s.io", plural="events", kind="Event", namespaced=True),
    Kind(group="coordination.k8s.io", plural="leases", kind="Lease", namespaced=True),
    Kind(group="batch", plural="jobs", kind="Job", namespaced=True, status=True),
    Kind(
        group=_RESOURCE,
        plural="resourceslices",
        kind="ResourceSlice",
        versions=_ALL,
        fields=("spec.driver", "spec.nodeName", "spec.pool.name"),
    ),
    Kind(
        group=_RESOURCE,
        plural="resourceclaims",
        kind="ResourceClaim",
        namespaced=True,
        status=True,
        versions=_ALL,
    ),
    Kind(
        group=_RESOURCE,
        plural="resourceclaimtemplates",
        kind="ResourceClaimTemplate",
        namespaced=True,
        versions=_ALL,
    ),
    Kind(group=_RESOURCE, plural="deviceclasses", kind="DeviceClass", versions=_ALL),
    Kind(
        group=_RESOURCE,
        plural="devicetaintrules",
        kind="DeviceTaintRule",
        status=True,
        versions=("v1", "v1beta2", "v1alpha3"),
    ),
    Kind(
        group="tessera.dev",
        plural="nodepreflights",
        kind="NodePreflight",
        status=True,
        versions=("v1alpha1",),
    ),
)


def find(group: str, plural: str, kinds: tuple[Kind, ...] = KINDS) -> Kind | None:
    return next((k for k in kinds if (k.group, k.plural) == (group, plural)), None)


def by_plural(plural: str) -> Kind:
    """For callers in this process; `events` are those of the core group."""
    return next(k for k in KINDS if k.plural == plural)


DEFAULT_SERVED: Mapping[str, tuple[str, ...]] = {
    "": ("v1",),
    "events.k8s.io": ("v1",),
    "coordination.k8s.io": ("v1",),
    "batch": ("v1",),
    _RESOURCE: ("v1",),
    "tessera.dev": ("v1alpha1",),
}
