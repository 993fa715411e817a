"""The DRA service, v1 and v1beta1: protobuf in, ClaimService asked, protobuf out.

Why it exists: the kubelet gives up on a whole pod for a missing entry, one too many or a failed
RPC, and all it shows to the user is the text of an error. So whatever happens inside, every claim
asked about gets exactly one entry, and what went wrong stands in it.

Must not know: how a claim is prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from api.kubelet.dra.v1 import dra_pb2 as v1
from api.kubelet.dra.v1beta1 import dra_pb2 as v1beta1
from driver.core.errors import TesseraError
from driver.core.ids import ClaimUID, OpId
from driver.kubelet.methods import Service, Unary
from driver.ports.kubelet import (
    OP_ID,
    ClaimRef,
    ClaimService,
    Failure,
    PrepareAnswer,
    PreparedDevice,
    UnprepareAnswer,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
Claim = v1.Claim | v1beta1.Claim
Device = v1.Device | v1beta1.Device
PrepareEntry = v1.NodePrepareResourceResponse | v1beta1.NodePrepareResourceResponse
P = TypeVar("P", v1.NodePrepareResourcesResponse, v1beta1.NodePrepareResourcesResponse)
U = TypeVar("U", v1.NodeUnprepareResourcesResponse, v1beta1.NodeUnprepareResourcesResponse)

_NO_OP: Final = OpId("-")


def dra_services(service: ClaimService) -> tuple[Service, ...]:
    """Newest first: the kubelet takes the first version that it knows."""
    return tuple(_dra_service(name, pb, service) for name, pb in (("v1", v1), ("v1beta1", v1beta1)))


def _dra_service(version: str, pb: Any, service: ClaimService) -> Service:
    """`pb`: the generated module of that version; the table checks its types when it is built."""
    return Service(
        advertised=f"{version}.DRAPlugin",
        descriptor=pb.DESCRIPTOR.services_by_name["DRAPlugin"],
        methods=(
            Unary(
                name="NodePrepareResources",
                request=pb.NodePrepareResourcesRequest,
                response=pb.NodePrepareResourcesResponse,
                call=lambda request, _: prepare(
                    service, request.claims, pb.NodePrepareResourcesResponse()
                ),
            ),
            Unary(
                name="NodeUnprepareResources",
                request=pb.NodeUnprepareResourcesRequest,
                response=pb.NodeUnprepareResourcesResponse,
                call=lambda request, _: unprepare(
                    service, request.claims, pb.NodeUnprepareResourcesResponse()
                ),
            ),
        ),
    )


def prepare(service: ClaimService, claims: Iterable[Claim], response: P) -> P:
    answers = _ask(claims, service.prepare)
    for uid, answer in answers.items():
        _fill(response.claims[uid], uid, answer)
    return response


def unprepare(service: ClaimService, claims: Iterable[Claim], response: U) -> U:
    answers: Mapping[ClaimUID, UnprepareAnswer] = _ask(claims, service.unprepare)
    for uid, answer in answers.items():
        entry = response.claims[uid]  # reading it creates it, which says success
        if answer is not None:
            entry.error = _text(answer)
    return response


def _ask(
    claims: Iterable[Claim], call: Callable[[Sequence[ClaimRef]], Mapping[ClaimUID, T]]
) -> dict[ClaimUID, T | Failure]:
    """One answer for each claim of the request and no other, whatever the service does."""
    refs = {
        ClaimUID(c.uid): ClaimRef(namespace=c.namespace, name=c.name, uid=ClaimUID(c.uid))
        for c in claims
    }
    if not refs:  # a liveness probe, which must not wait for the service's locks
        return {}
    try:
        given = dict(call(tuple(refs.values())))
    except Exception as error:
        log.exception("the claim service failed", extra={"claims": [str(r) for r in refs.values()]})
        return dict.fromkeys(refs, Failure(message=_internal(error)))
    if unasked := given.keys() - refs.keys():
        log.error("answers for claims that nobody asked about", extra={"uids": sorted(unasked)})
    return {
        uid: given[uid] if uid in given else Failure(message=f"no answer for claim {ref}")
        for uid, ref in refs.items()
    }


def _fill(entry: PrepareEntry, uid: ClaimUID, answer: PrepareAnswer) -> None:
    if isinstance(answer, Failure):
        entry.error = _text(answer)
        return
    try:
        for device in answer:
            _fill_device(entry.devices.add(), device)
    except Exception as error:
        log.exception("an answer cannot be put into a message", extra={"claim_uid": uid})
        entry.Clear()
        entry.error = _internal(error)


def _fill_device(out: Device, device: PreparedDevice) -> None:
    out.request_names.extend(device.requests)
    out.pool_name = device.pool
    out.device_name = device.device
    out.cdi_device_ids.extend(device.cdi_ids)
    if isinstance(out, v1.Device) and device.share_id is not None:
        out.share_id = device.share_id


def _text(failure: Failure) -> str:
    """Never empty, which would say success, and always UTF-8, which a file name need not be."""
    text = failure.message.encode(errors="replace").decode().strip()
    return text or f"failed without a reason; see the plugin's log, op_id {OP_ID.get(_NO_OP)}"


def _internal(error: Exception) -> str:
    if isinstance(error, TesseraError):
        return _text(Failure(message=str(error)))
    kind = type(error).__name__
    return _text(
        Failure(
            message=f"internal error ({kind}: {error}); "
            f"see the plugin's log, op_id {OP_ID.get(_NO_OP)}"
        )
    )
