"""The kubelet's side of a DRA plugin, for tests, benchmarks and the demo.

It speaks the wire contract and knows nothing of the driver: what it refuses, a kubelet refuses.
"""

from hack.fakekubelet.calls import Claim, ClaimResult, Device, Refused
from hack.fakekubelet.kubelet import FakeKubelet

__all__ = ["Claim", "ClaimResult", "Device", "FakeKubelet", "Refused"]
