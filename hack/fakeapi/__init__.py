"""A stand-in for the Kubernetes API server, over real HTTP, in the same process.

For what the real one is too slow or too healthy for: crash and property tests, injected failures,
and a demonstration that needs nothing but the machine. The contract tests in tests/kube run
against it and against a real server, so that it cannot drift unnoticed.

    Cluster     what the API server does: versions, conflicts, validation, dropped fields, watch
    ApiServer   HTTP around it: pages, streams, injected failures, a log of requests
    scheduler   gives devices to claims, first fit in published order

It imports nothing of the driver: a shared mistake would pass its own test.
"""

from hack.fakeapi.cluster import Cluster
from hack.fakeapi.refusal import Refusal
from hack.fakeapi.server import ApiServer, Request
from hack.fakeapi.strategy import Settings

__all__ = ["ApiServer", "Cluster", "Refusal", "Request", "Settings"]
