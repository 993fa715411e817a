"""Reads a claim for its preparation: from the API as it is now, never from a cache.

Why not from a cache: the allocation may be newer than it, and a claim that is gone by now must not
be prepared once more. Every refusal is a ClaimError, for the user of that claim.
"""

from __future__ import annotations

from pydantic import ValidationError

from api.resource.claim import ResourceClaim
from driver.core.errors import ClaimError, KubeError, KubeNotFound
from driver.plugin.served import ServedVersion
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.kubelet import ClaimRef


class ClaimReader:
    def __init__(self, api: KubeApi, served: ServedVersion) -> None:
        self._api = api
        self._served = served

    def read(self, ref: ClaimRef) -> ResourceClaim:
        return _parse(self._fetch(ref), ref)

    def _fetch(self, ref: ClaimRef) -> JsonObject:
        try:
            return self._api.get(self._served.get().claims, ref.name, namespace=ref.namespace)
        except KubeNotFound as error:
            raise ClaimError(f"claim {ref} does not exist any more") from error
        except KubeError as error:
            raise ClaimError(f"claim {ref} cannot be read, will be tried again: {error}") from error


def _parse(obj: JsonObject, ref: ClaimRef) -> ResourceClaim:
    try:
        return ResourceClaim.model_validate(obj)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ClaimError(
            f"claim {ref} is not understood at {where}: {first['msg']}", retryable=False
        ) from error
