"""What the API says of the claims that recovery asks about.

Why it exists: "gone" must be the server's own word (by name and UID), never a cache's; that a claim
is there may come from the reflector, which costs no request. A claim that could not be asked for is
left out of the answer. Must not know what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pydantic import ValidationError

from api.resource.claim import ResourceClaim
from driver.core.errors import KubeError, KubeNotFound
from driver.core.ids import ClaimUID, DeviceName
from driver.core.ledger import Entry
from driver.core.recovery import devices_of
from driver.core.recovery_rebuild import Asked, KnownClaim, known_claim
from driver.observe.logs import Log
from driver.plugin.node import Identity
from driver.plugin.publishing.allocations import DEVICES
from driver.plugin.served import ServedVersion
from driver.ports.kube import JsonObject, KubeApi

log = Log(__name__)

Answers = dict[ClaimUID, KnownClaim | None]


class ClaimLookup:
    """`followed`: the claims that the reflector holds, by UID."""

    def __init__(
        self,
        api: KubeApi,
        served: ServedVersion,
        *,
        identity: Identity,
        followed: Callable[[], Mapping[ClaimUID, JsonObject]],
    ) -> None:
        self._api = api
        self._served = served
        self._identity = identity
        self._followed = followed

    def ask(self, claims: Mapping[ClaimUID, Entry | None]) -> Answers:
        """Of each claim, with its entry where it has one. None: it is gone."""
        answers: Answers = {}
        followed = self._followed()
        nameless: set[ClaimUID] = set()
        try:
            for uid, entry in claims.items():
                if entry is None or not entry.name:
                    nameless.add(uid)
                elif (known := _held(followed.get(uid), entry)) is not None:
                    answers[uid] = known
                else:
                    self._put(answers, uid, lambda e=entry: self._get(e))  # type: ignore[misc]
            if nameless:
                self._search(nameless, answers)
        except KubeError as error:
            # The rest would fail too, each after its time-out; the next look asks again.
            log.info("claims could not be asked for", reason=str(error))
        return answers

    def _put(self, answers: Answers, uid: ClaimUID, read: Callable[[], JsonObject | None]) -> None:
        obj = read()
        try:
            gone = obj is None or obj["metadata"]["uid"] != uid
            answers[uid] = None if gone or obj is None else self._known(obj)
        except ValidationError as error:
            log.warning("claim is not understood, left alone", claim=uid, reason=str(error))

    def _get(self, entry: Entry) -> JsonObject | None:
        try:
            return self._api.get(self._served.get().claims, entry.name, namespace=entry.namespace)
        except KubeNotFound:
            return None

    def _search(self, uids: Iterable[ClaimUID], answers: Answers) -> None:
        """Whose name was lost with their entry: one list for all of them."""
        items = self._api.list(self._served.get().claims).items
        found = {obj["metadata"]["uid"]: obj for obj in items}
        for uid in uids:
            self._put(answers, uid, lambda u=uid: found.get(u))  # type: ignore[misc]

    def _known(self, obj: JsonObject) -> KnownClaim:
        claim = ResourceClaim.model_validate(obj)
        return known_claim(claim, driver=self._identity.driver, pool=self._identity.pool)


def _held(followed: JsonObject | None, entry: Entry) -> KnownClaim | None:
    """From the reflector, where it shows devices of the entry; else the server is asked."""
    if followed is None or devices_of(entry).isdisjoint(followed[DEVICES]):
        return None
    metadata = followed["metadata"]
    return KnownClaim(
        namespace=metadata["namespace"],
        name=metadata["name"],
        devices={DeviceName(d): Asked() for d in followed[DEVICES]},
    )
