"""The plugin's metrics, as methods that say what happened.

Why a registry of its own: two plugins in one test process, and no metric of a library that we did
not choose. Label values come from small closed sets; a claim or device is never one.

Must not know who calls, or how metrics are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from driver.ports.kubelet import RpcOutcome

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

GPU_STATES: Final = ("ready", "degraded", "unknown", "reset", "reboot", "operator")

_RPC_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45)
"""Seconds; the last is the kubelet's own time limit."""


class Metrics:
    """Implements `driver.ports.kubelet.RpcMetrics`. Safe for several threads."""

    def __init__(self, *, version: str) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._rpcs = Histogram(
            "tessera_kubelet_rpc_seconds",
            "Calls of the kubelet, by gRPC method and outcome (ok, claim_error, error)",
            ("method", "outcome"),
            buckets=_RPC_BUCKETS,
            registry=registry,
        )
        self._slice_writes = Counter(
            "tessera_slice_writes_total",
            "Writes of ResourceSlices that the API server took",
            ("verb", "reason"),
            registry=registry,
        )
        self._relists = Counter(
            "tessera_reflector_relists_total",
            "Full lists after the first, by resource",
            ("resource",),
            registry=registry,
        )
        self._nvml_errors = Counter(
            "tessera_nvml_errors_total",
            "Failed NVML calls, by function and NVML return code",
            ("call", "code"),
            registry=registry,
        )
        self._dropped = Counter(
            "tessera_events_dropped_total",
            "Events that were never stored: too many at once, or refused by the API server",
            registry=registry,
        )
        self._damaged = Counter(
            "tessera_ledger_damaged_total", "Ledger files set aside", registry=registry
        )
        self._repairs = Counter(
            "tessera_repairs_total",
            "Repairs of claims, by kind and outcome (done, busy, in_use, failed)",
            ("repair", "outcome"),
            registry=registry,
        )
        self._orphans = Gauge(
            "tessera_orphaned_claims",
            "Claims that have ended in the API and still hold devices here",
            registry=registry,
        )
        self._allocations = Counter(
            "tessera_allocations_total",
            "Allocations of this node's devices: the policy's choice at that moment, or another",
            ("choice",),
            registry=registry,
        )
        self._faults = Counter(
            "tessera_health_faults_total",
            "Faults that a source has told, by source; each time that it is told",
            ("source",),
            registry=registry,
        )
        self._kernel_records = Counter(
            "tessera_kernel_records_total",
            "Records of the kernel log that concern GPUs, or try to: told, forged, unreadable or"
            " not-understood",
            ("kind",),
            registry=registry,
        )
        self._probes = Counter(
            "tessera_probes_total",
            "Health probes, by how they ended",
            ("outcome",),
            registry=registry,
        )
        self._transitions = Counter(
            "tessera_health_transitions_total",
            "Changes of a GPU's state, by the state that it came to",
            ("state",),
            registry=registry,
        )
        self._gpus = Gauge(
            "tessera_gpus",
            "GPUs by state, each by the worst of its devices",
            ("state",),
            registry=registry,
        )
        self._claims = Gauge(
            "tessera_prepared_claims", "Claims prepared on this node", registry=registry
        )
        self._devices = Gauge(
            "tessera_published_devices", "Devices in this node's slices", registry=registry
        )
        self._ready = Gauge(
            "tessera_ready", "1 while every readiness condition is well", registry=registry
        )
        Gauge(
            "tessera_build_info",
            "Always 1; the version is a label",
            ("version",),
            registry=registry,
        ).labels(version).set(1)
        ProcessCollector(registry=registry)  # process_resident_memory_bytes, process_cpu_seconds

    def observe(self, method: str, seconds: float, outcome: RpcOutcome) -> None:
        self._rpcs.labels(method, outcome).observe(seconds)

    def slice_written(self, verb: str, reason: str) -> None:
        self._slice_writes.labels(verb, reason).inc()

    def relisted(self, resource: str) -> None:
        self._relists.labels(resource).inc()

    def nvml_failed(self, call: str, code: int) -> None:
        self._nvml_errors.labels(call, str(code)).inc()

    def event_dropped(self) -> None:
        self._dropped.inc()

    def ledger_damaged(self) -> None:
        self._damaged.inc()

    def repaired(self, repair: str, outcome: str) -> None:
        self._repairs.labels(repair, outcome).inc()

    def set_orphaned_claims(self, count: int) -> None:
        self._orphans.set(count)

    def allocated(self, *, as_chosen: bool) -> None:
        self._allocations.labels("policy" if as_chosen else "other").inc()

    def health_fault(self, source: str, count: int = 1) -> None:
        self._faults.labels(source).inc(count)

    def kernel_record(self, kind: str, count: int = 1) -> None:
        self._kernel_records.labels(kind).inc(count)

    def probed(self, outcome: str) -> None:
        self._probes.labels(outcome).inc()

    def health_changed(self, state: str) -> None:
        self._transitions.labels(state).inc()

    def set_gpu_states(self, states: Mapping[str, int]) -> None:
        for state in GPU_STATES:
            self._gpus.labels(state).set(states.get(state, 0))

    def show_prepared_claims(self, count: Callable[[], int]) -> None:
        """`count` is asked at each scrape: another plugin of the node may have changed it."""
        self._claims.set_function(count)

    def set_published_devices(self, count: int) -> None:
        self._devices.set(count)

    def set_ready(self, ready: bool) -> None:
        self._ready.set(int(ready))

    def render(self) -> bytes:
        """Prometheus text, of type `CONTENT_TYPE`."""
        return generate_latest(self._registry)
