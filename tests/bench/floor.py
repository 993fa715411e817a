"""The least that preparing a claim can cost, as a plain script.

One unary gRPC call over a unix socket, one GET of the claim, the durable writes that the ledger
needs (file and folder; one for a whole GPU, two where hardware is changed), one small file for CDI.
No decision, no check, no log.

Usage: python -m tests.bench.floor SOCKET API_URL FOLDER WRITES
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import urllib3

from api.kubelet.dra.v1 import dra_pb2 as pb

LEDGER_BYTES, CDI_BYTES = 600, 2000


def main(socket: str, api: str, folder: str, writes: str) -> None:
    http = urllib3.PoolManager()
    ledger, cdi = Path(folder, "ledger"), Path(folder, "cdi")
    ledger.mkdir(parents=True)
    cdi.mkdir()

    def prepare(request: pb.NodePrepareResourcesRequest, _: Any) -> pb.NodePrepareResourcesResponse:
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims"
            http.request("GET", f"{api}{path}/{claim.name}").json()
            for _ in range(int(writes)):
                durable(ledger, claim.uid, b"x" * LEDGER_BYTES)
            small(cdi, claim.uid, b"x" * CDI_BYTES)
            answer.claims[claim.uid].devices.add(
                request_names=["gpu"], pool_name="p", device_name="d", cdi_device_ids=["v/c=n"]
            )
        return answer

    service = pb.DESCRIPTOR.services_by_name["DRAPlugin"].full_name
    handler = grpc.unary_unary_rpc_method_handler(
        prepare,
        request_deserializer=pb.NodePrepareResourcesRequest.FromString,
        response_serializer=pb.NodePrepareResourcesResponse.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"NodePrepareResources": handler}),)
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    threading.Event().wait()


def durable(folder: Path, name: str, data: bytes) -> None:
    fd = os.open(folder / f".{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    (folder / f".{name}").rename(folder / name)
    parent = os.open(folder, os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)


def small(folder: Path, name: str, data: bytes) -> None:
    (folder / f".{name}").write_bytes(data)
    (folder / f".{name}").rename(folder / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
