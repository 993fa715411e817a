"""Keeps the node's condition `GPUReady` in step with the judgement of its GPUs.

Why it exists: controllers and people look at nodes, not at devices; a condition is where recipes
for node repair and for start-up taints look. It is written when it changes, and now and then as a
sign of life. Nothing is written before the first judgement: a restart must not say "unknown" of
GPUs whose state has not changed.

Must not know how the judgement came about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from driver.core.errors import KubeError, KubeNotFound
from driver.observe.logs import Log
from driver.plugin.discover import Pauses
from driver.plugin.supervise import Wakeup
from driver.ports.kube import KubeApi
from driver.ports.resources import NODES

log = Log(__name__)

CONDITION: Final = "GPUReady"
HEARTBEAT: Final = 300.0
"""Seconds; as often as the kubelet's own status without a change."""
_LINGER: Final = 0.5
"""Seconds that a change waits: slices go to the server first, and many faults are one write."""
_MANAGER: Final = "tessera-health"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`reason`: one word in CamelCase; `message`: counts, and what is withheld."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def _utc_now() -> datetime:
    return datetime.now(UTC)


class NodeCondition:
    """`set` from any thread; `run` in its own."""

    def __init__(
        self,
        api: KubeApi,
        *,
        node: str,
        pauses: Pauses,
        wakeup: Wakeup,
        heartbeat: float = HEARTBEAT,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._api = api
        self._node = node
        self._pauses = pauses
        self._wakeup = wakeup
        self._heartbeat = heartbeat
        self._now = now
        self._wanted: Condition | None = None
        self._since: tuple[str, str] | None = None
        """Status, and since when; None: to be read from the node first."""

    def set(self, condition: Condition) -> None:
        if condition != self._wanted:
            self._wanted = condition
            self._wakeup.wake()

    def run(self, stop: threading.Event) -> None:
        pause: float | None = None
        while not stop.is_set():
            if self._wakeup.wait(pause):
                stop.wait(_LINGER)
            if stop.is_set():
                return
            pause = self.write()

    def write(self) -> float | None:
        """Write the newest condition; seconds until the next time, None: when there is one."""
        wanted = self._wanted
        if wanted is None:
            return None
        try:
            since = self._since
            if since is None:
                stored = self._read()
                if (rest := self._fresh(stored, wanted)) > 0:
                    self._since = stored["status"], stored["lastTransitionTime"]
                    return rest
                since = stored.get("status", ""), stored.get("lastTransitionTime", "")
            now = self._now().strftime(_TIME)
            since = since if since[0] == wanted.status and since[1] else (wanted.status, now)
            self._api.apply_status(NODES, self._body(wanted, since[1], now), manager=_MANAGER)
        except KubeNotFound:
            # A Node that is made anew has no condition, whatever the old one had.
            self._since = None
            return self._pauses.next()
        except KubeError as error:
            log.warning("node condition not written, will be tried again", reason=str(error))
            return self._pauses.next()
        if self._since is None or self._since[0] != wanted.status:
            log.info("node condition written", status=wanted.status, reason=wanted.reason)
        self._since = since
        self._pauses.reset()
        # What was set meanwhile has woken us already.
        return self._heartbeat

    def _read(self) -> Mapping[str, str]:
        """The condition as it is stored; empty: the node has none."""
        conditions = (self._api.get(NODES, self._node).get("status") or {}).get("conditions") or ()
        return next((each for each in conditions if each.get("type") == CONDITION), {})

    def _fresh(self, stored: Mapping[str, str], wanted: Condition) -> float:
        """For how many seconds what is stored still says all that there is to say."""
        told = stored.get("status"), stored.get("reason"), stored.get("message")
        if told != (wanted.status, wanted.reason, wanted.message):
            return 0
        try:
            beat = datetime.strptime(stored["lastHeartbeatTime"], _TIME).replace(tzinfo=UTC)
            _ = stored["lastTransitionTime"]
        except (KeyError, ValueError):
            return 0
        return min(self._heartbeat - (self._now() - beat).total_seconds(), self._heartbeat)

    def _body(self, wanted: Condition, since: str, now: str) -> dict[str, object]:
        """Server-side apply: our condition only; the others belong to the kubelet."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._node},
            "status": {
                "conditions": [
                    {
                        "type": CONDITION,
                        "status": wanted.status,
                        "reason": wanted.reason,
                        "message": wanted.message,
                        "lastHeartbeatTime": now,
                        "lastTransitionTime": since or now,
                    }
                ]
            },
        }
