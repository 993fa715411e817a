"""Names of things, as types, so that a claim's UID is never passed where a device's name belongs.

Must not know how any of them is made up; `names.py` does that.
"""

from __future__ import annotations

from typing import NewType

ClaimUID = NewType("ClaimUID", str)
"""`metadata.uid` of a ResourceClaim."""

GpuUuid = NewType("GpuUuid", str)
"""NVML's UUID of a whole GPU, `GPU-...`."""

DeviceName = NewType("DeviceName", str)
"""A device in a pool: a DNS label of at most 63 characters."""

PoolName = NewType("PoolName", str)
"""`spec.pool.name` of a slice: `<node>/tessera`."""

SliceName = NewType("SliceName", str)
"""`metadata.name` of a ResourceSlice."""

CdiId = NewType("CdiId", str)
"""A fully qualified CDI device, `vendor/class=name`."""

OpId = NewType("OpId", str)
"""Eight hex digits that join the log lines of one RPC or one reconciliation."""
