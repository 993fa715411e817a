"""Whether the server stores taints of devices; before 1.36 it drops them by default, in silence.

Why it matters: a device that is withheld would be offered, and each look would write taints that
are not kept. What the server stored is the answer, not its version: a feature can be off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from api.resource.codec import NodeOwner, encode_slice
from api.resource.types import Device, Pool, Slice, Taint, TaintEffect
from driver.core.described import Described
from driver.core.errors import KubeInvalid
from driver.core.expressible import Taints, TaintSupport
from driver.core.names import TRIED, slice_name
from driver.observe.logs import Log
from driver.plugin.served import Served
from driver.ports.kube import JsonObject, KubeApi

log = Log(__name__)


class TaintProbe:
    """Asks when the first taint is wanted; only an answer is remembered: a server that is away has
    not dropped anything. For one thread, but for `answered`.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: TaintSupport | None = None

    def support(
        self,
        taints: Taints,
        described: Described,
        served: Served,
        owner: Callable[[], NodeOwner],
    ) -> TaintSupport:
        """By creations that are only tried. All of it where no taint is wanted."""
        if not taints:
            return TaintSupport()
        if (known := self._known) is None:
            known = self._ask(described.pool(), served, owner())
            self._learn(known)
        return known

    def answered(self, wanted: Slice, answer: JsonObject) -> bool:
        """Whether a write kept its taints: the feature may have been switched off since."""
        if not any(d.taints for d in wanted.devices) or _has_taints(answer):
            return True
        self._learn(TaintSupport(stored=False))
        return False

    def refused(self) -> None:
        """A slice was refused: the server may be an older one by now."""
        self._known = None

    def _learn(self, support: TaintSupport) -> None:
        with self._lock:
            news, self._known = support != self._known, support
        if news:
            _tell(support)

    def _ask(self, pool: Pool, served: Served, owner: NodeOwner) -> TaintSupport:
        def stored(*effects: TaintEffect) -> bool:
            made = tuple(Taint(key=f"{pool.driver}/{e.value}", value="", effect=e) for e in effects)
            body = encode_slice(
                Slice(
                    name=slice_name(pool.node, pool.driver, TRIED, "try"),
                    devices=(Device(name="gpu-try", taints=made),),
                ),
                pool=pool,
                generation=1,
                owner=owner,
                version=served.version,
            )
            return _has_taints(self._api.create(served.slices, body, dry_run=True))

        try:
            return TaintSupport(stored=stored(TaintEffect.NO_SCHEDULE, TaintEffect.NONE))
        except KubeInvalid:
            log.debug("taints with the effect None are refused, tried without")
        try:
            return TaintSupport(stored=stored(TaintEffect.NO_SCHEDULE), none=False)
        except KubeInvalid as error:
            # Such as a webhook that takes no dry run. The first real write will tell.
            log.warning("it cannot be tried whether taints are stored", reason=str(error))
            return TaintSupport(none=False)


def _has_taints(obj: JsonObject) -> bool:
    devices = obj["spec"].get("devices") or ()
    return any((device.get("basic") or device).get("taints") for device in devices)


def _tell(support: TaintSupport) -> None:
    if not support.stored:
        log.error(
            "this server drops taints of devices (feature DRADeviceTaints): devices that are"
            " withheld and that nobody holds are left out of the slices, degraded ones are not"
            " shown there, and no fault ends pods"
        )
    elif not support.none:
        log.info("this server does not know the taint effect None: degraded devices get no taint")
