"""A Kubernetes control plane of bare processes, for benchmarks that need component flags.

Why it exists: a kind cluster takes half a minute and its nodes cost CPU time that belongs to the
thing measured. Here etcd, API server, controller manager and scheduler run on loopback in a folder
that is gone afterwards; there is no kubelet, so nodes are plain objects and pods only get bound.
"""

from hack.controlplane.plane import ControlPlane

__all__ = ["ControlPlane"]
