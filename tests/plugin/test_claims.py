"""Preparing and unpreparing, with everything around it in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import cast

import pytest

from driver.core.errors import KubeUnavailable
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.claims import Claims
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.turns import Turns
from driver.plugin.served import ServedVersion
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.kubelet import ClaimRef, Failure, PrepareAnswer
from driver.state.thread_locks import ThreadLocks
from tests.plugin.mig import MemoryMig
from tests.plugin.stubs import (
    DRIVER,
    NODE,
    ClaimsApi,
    MemoryCdi,
    MemoryLedger,
    Root,
    claim,
    device,
    gpu,
    snapshot,
)


class Node:
    """A node with two GPUs and what its plugin keeps."""

    def __init__(self, *, boot: str = "boot-1", of: Node | None = None) -> None:
        self.api: ClaimsApi = of.api if of else ClaimsApi()
        self.ledger: MemoryLedger = of.ledger if of else MemoryLedger()
        self.cdi: MemoryCdi = of.cdi if of else MemoryCdi()
        self.root = Root()
        self.mig = MemoryMig()
        self.hardware = Hardware()
        self.hardware.found(build_inventory(snapshot(2)))
        locks = ThreadLocks()
        self.claims = Claims(
            identity=Identity(driver=DRIVER, node=NODE, boot_id=boot),
            hardware=self.hardware,
            api=cast("KubeApi", self.api),
            served=ServedVersion(lambda: "v1"),
            ledger=self.ledger,
            cdi=self.cdi,
            driver_root=self.root,
            partitions=Partitions(self.mig, wait=lambda _: None),
            locks=GpuLocks(locks),
            turns=Turns(locks),
            patience=0,
        )

    def add(self, obj: JsonObject) -> ClaimRef:
        metadata = obj["metadata"]
        self.api.claims[metadata["namespace"], metadata["name"]] = obj
        return ClaimRef(
            namespace=metadata["namespace"], name=metadata["name"], uid=ClaimUID(metadata["uid"])
        )

    def prepare(self, ref: ClaimRef) -> PrepareAnswer:
        return self.claims.prepare([ref])[ref.uid]

    def error(self, ref: ClaimRef) -> str:
        answer = self.prepare(ref)
        assert isinstance(answer, Failure)
        return answer.message


def test_a_claim_gets_its_gpu_and_the_same_answer_again_without_a_write() -> None:
    node = Node()
    ref = node.add(claim("a", device(1)))
    first = node.prepare(ref)
    assert isinstance(first, tuple)
    assert [(d.requests, d.device, d.cdi_ids) for d in first] == [
        (("r0",), device(1), (f"tessera.dev/claim=uid-a-{device(1)}",))
    ]
    assert node.prepare(ref) == first
    assert node.ledger.puts == 1


def test_the_base_of_a_subrequest_is_named() -> None:
    node = Node()
    obj = claim("a", device(0))
    obj["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu/big"
    answer = node.prepare(node.add(obj))
    assert isinstance(answer, tuple)
    assert answer[0].requests == ("gpu",)


def test_results_of_other_drivers_are_left_alone() -> None:
    node = Node()
    ref = node.add(claim("a", "nic-0", driver="nic.example.com", pool="other"))
    assert node.prepare(ref) == ()
    assert not node.ledger.kept
    assert not node.cdi.specs


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (claim("a", device(0), uid="another"), "was replaced"),
        ({**claim("a"), "status": {}}, "not allocated"),
        (claim("a", device(7)), f"device {device(7)} of pool node-1/tessera is not on this node"),
        (claim("a", device(0), pool="node-2/tessera"), "is in pool node-2/tessera, this node"),
        ({**claim("a"), "metadata": {"name": "a"}}, "is not understood at metadata.namespace"),
    ],
)
def test_a_claim_that_cannot_be_served_leaves_nothing_behind(obj: JsonObject, said: str) -> None:
    node = Node()
    node.api.claims["default", "a"] = obj
    message = node.error(ClaimRef(namespace="default", name="a", uid=ClaimUID("uid-a")))
    assert said in message
    assert "default/a" in message
    assert not node.ledger.kept
    assert not node.cdi.specs


def test_configuration_that_nobody_would_read_is_refused() -> None:
    node = Node()
    obj = claim("a", device(0))
    obj["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": {}}}
    ]
    assert "takes none" in node.error(node.add(obj))


def test_one_failing_claim_does_not_stop_another() -> None:
    node = Node()
    good = node.add(claim("good", device(0)))
    gone = ClaimRef(namespace="default", name="gone", uid=ClaimUID("uid-gone"))
    answers = node.claims.prepare([gone, good])
    assert isinstance(answers[gone.uid], Failure)
    assert isinstance(answers[good.uid], tuple)


def test_a_gpu_that_another_claim_holds_is_not_given_twice() -> None:
    node = Node()
    node.prepare(node.add(claim("first", device(0))))
    second = node.add(claim("second", device(0)))
    assert "still held by claim default/first" in node.error(second)
    node.claims.unprepare([ClaimRef(namespace="default", name="first", uid=ClaimUID("uid-first"))])
    assert isinstance(node.prepare(second), tuple)


def test_admin_access_shares_a_gpu_in_use() -> None:
    node = Node()
    node.prepare(node.add(claim("user", device(0))))
    watcher = node.add(claim("watcher", device(0), adminAccess=True))
    assert isinstance(node.prepare(watcher), tuple)
    assert isinstance(node.prepare(node.add(claim("next", device(1)))), tuple)


def test_missing_driver_files_are_an_error_and_not_a_file() -> None:
    node = Node()
    node.root.missing = "/dev/nvidia0 does not exist"
    assert "/dev/nvidia0 does not exist" in node.error(node.add(claim("a", device(0))))
    assert not node.cdi.specs
    assert not node.ledger.kept


def test_a_ledger_that_cannot_be_written_is_the_claims_error() -> None:
    node = Node()
    node.ledger.broken = "no space left"
    assert "no space left" in node.error(node.add(claim("a", device(0))))


def test_a_deleted_cdi_file_is_restored_when_the_kubelet_asks_again() -> None:
    node = Node()
    ref = node.add(claim("a", device(0)))
    node.prepare(ref)
    wanted = dict(node.cdi.specs)
    node.cdi.specs.clear()
    node.prepare(ref)
    assert node.cdi.specs == wanted
    assert node.ledger.puts == 1


def test_after_a_reboot_the_claim_is_prepared_anew_under_the_same_names() -> None:
    before = Node()
    ref = before.add(claim("a", device(0)))
    first = before.prepare(ref)
    before.cdi.specs.clear()
    after = Node(boot="boot-2", of=before)
    assert after.prepare(ref) == first
    assert after.ledger.kept[ref.uid].boot_id == "boot-2"
    assert after.cdi.specs


def test_a_claim_of_an_earlier_boot_blocks_nobody() -> None:
    before = Node()
    before.prepare(before.add(claim("old", device(0))))
    after = Node(boot="boot-2", of=before)
    assert isinstance(after.prepare(after.add(claim("new", device(0)))), tuple)


def test_without_hardware_the_reason_is_told() -> None:
    node = Node()
    node.claims._hardware = hardware = Hardware()
    hardware.failed("the NVIDIA kernel driver is not loaded")
    assert "the NVIDIA kernel driver is not loaded" in node.error(node.add(claim("a", device(0))))


def test_an_unreachable_api_fails_preparing_but_not_unpreparing() -> None:
    node = Node()
    ref = node.add(claim("a", device(0)))
    node.prepare(ref)
    node.api.failure = KubeUnavailable("connection refused", what="get claim")
    assert "will be tried again" in node.error(node.add(claim("b", device(1))))
    assert node.claims.unprepare([ref]) == {ref.uid: None}
    assert not node.ledger.kept
    assert not node.cdi.specs


def test_an_unknown_claim_is_unprepared_and_its_stray_file_goes() -> None:
    node = Node()
    stray = ClaimRef(namespace="default", name="x", uid=ClaimUID("stray"))
    node.cdi.specs[stray.uid] = {}
    assert node.claims.unprepare([stray]) == {stray.uid: None}
    assert not node.cdi.specs


def test_the_container_learns_which_gpus_it_has() -> None:
    node = Node()
    ref = node.add(claim("a", device(0), device(1)))
    node.prepare(ref)
    edits = node.cdi.specs[ref.uid]["containerEdits"]
    assert isinstance(edits, dict)
    assert f"TESSERA_DEVICES={gpu(0).uuid},{gpu(1).uuid}" in cast("list[str]", edits["env"])


def test_a_claim_waits_for_the_holder_of_its_gpu_that_is_just_ending() -> None:
    node = Node()
    node.claims._patience = 30
    first = node.add(claim("first", device(0)))
    node.prepare(first)
    second = node.add(claim("second", device(0)))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.prepare, second)
        assert not wait([waiting], timeout=0.2).done
        node.claims.unprepare([first])
        assert isinstance(waiting.result(10), tuple)
