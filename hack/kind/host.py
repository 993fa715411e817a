"""What this machine is: facts that decide how the cluster is configured.

Why it exists: a kubelet on cgroup v1, or root without CAP_SYS_RESOURCE, needs switches that would
be wrong elsewhere; each is decided by a fact that was looked at, never by a guess about the place.

Must not know: how the facts are used.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hack.kind.versions import DEBIAN_SUITE

CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`may_raise_limits`: root has CAP_SYS_RESOURCE (negative oom scores, higher hard limits)."""

    cgroup_v1: bool
    may_raise_limits: bool

    @classmethod
    def detect(cls, *, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> "Host":
        status = (proc / "self/status").read_text()
        return cls(
            cgroup_v1=not (cgroup / "cgroup.controllers").exists(),
            may_raise_limits=has_capability(status, CAP_SYS_RESOURCE),
        )


def has_capability(status: str, number: int) -> bool:
    """Read the effective set of a /proc/PID/status text."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> number & 1)


def apt_mirror(etc: Path = Path("/etc/apt")) -> str | None:
    """The Debian mirror that this machine already uses, or None: then debootstrap has its own."""
    if own := os.environ.get("TESSERA_DEBIAN_MIRROR"):
        return own
    for path in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in path.read_text().split("\n\n"):
            fields = dict(re.findall(r"^(\w[\w-]*):\s*(.+)$", stanza, re.MULTILINE))
            if DEBIAN_SUITE in fields.get("Suites", "").split():
                return str(fields["URIs"].split()[0])
    line = rf"^deb\s+(?:\[[^]]*]\s+)?(\S+)\s+{DEBIAN_SUITE}\s"
    lists = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]
    for path in lists:
        text = path.read_text() if path.exists() else ""
        if found := re.search(line, text, re.MULTILINE):
            return str(found[1])
    return None
