"""MIG partitions on a worker with four simulated H100: made for a claim, packed, gone after it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import cluster
from tests.e2e.cluster import DRIVER, Obj, apply, devices, get, kubectl, until, wait, workers
from tests.e2e.conftest import install
from tests.e2e.hardware import instances, uuids

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb")
LISTED = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[-0-9a-f]+)\)", re.MULTILINE)


@pytest.fixture
def node() -> str:
    """The worker with four GPUs."""
    return workers()[1]


def mig_claim(name: str, profile: str) -> Obj:
    request = {"name": "gpu", "exactly": {"deviceClassName": f"mig-{profile}.tessera.dev"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def start(node: str, **claims: str) -> None:
    """A claim and a pod each, one after the other, running; an empty profile is a whole GPU."""
    for name, profile in claims.items():
        begin(node, name, profile)
        wait(f"pod/{name}", "condition=Ready")


def begin(node: str, name: str, profile: str) -> None:
    wanted = mig_claim(name, profile) if profile else cluster.claim(name)
    pod = cluster.pod(name, claim_name=name, node=node)
    pod["spec"]["volumes"] = [{"name": "sim", "hostPath": {"path": "/var/lib/tessera-sim/run"}}]
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"] = [{"name": "sim", "mountPath": "/sim"}]
    container["env"] = [{"name": "SIMNVML_STATE", "value": "/sim"}]
    apply(wanted, pod)


def end(*names: str) -> None:
    kubectl("delete", "pod", *names, "--wait")
    kubectl("delete", "resourceclaim", *names, "--wait")


def allocated(name: str) -> str:
    claim = get("resourceclaim", name)
    device: str = claim["status"]["allocation"]["devices"]["results"][0]["device"]
    return device


def placed(node: str, name: str) -> tuple[str, str, int]:
    """(GPU's UUID, profile, start) that the allocation says."""
    device = devices(node)[allocated(name)]
    attributes = device["attributes"]
    return (
        attributes["parentUUID"]["string"],
        attributes["profile"]["string"],
        int(device["name"].rpartition("-")[2]),
    )


def on_hardware(node: str) -> Counter[tuple[str, str, int]]:
    own = uuids(node)
    return Counter((own[i.gpu], i.profile, i.start) for i in instances(node))


def status_data(name: str) -> dict[str, Any]:
    """What the plugin wrote into the claim's status; it may come after the pod runs."""
    until(lambda: "devices" in get("resourceclaim", name)["status"], seconds=20)
    data: dict[str, Any] = get("resourceclaim", name)["status"]["devices"][0]["data"]
    return data


def test_every_profile_is_made_for_its_pod_and_gone_after_it(node: str) -> None:
    names = {f"p{i}": profile for i, profile in enumerate(PROFILES)}
    start(node, **names)
    assert on_hardware(node) == Counter(placed(node, name) for name in names)
    for name in names:
        data = status_data(name)
        (made,) = [i for i in instances(node) if i.uuid == data["uuid"]]
        assert (made.gi, made.ci) == (data["gpuInstance"], data["computeInstance"])
    end(*names)
    until(lambda: not instances(node), why=lambda: instances(node))


def test_a_pod_sees_exactly_its_partition(node: str) -> None:
    start(node, a="2g.20gb", b="1g.10gb")
    for name, profile in (("a", "2g.20gb"), ("b", "1g.10gb")):
        seen = kubectl(
            "exec", name, "--", "sh", "-c", "SIMNVML_VISIBLE=$TESSERA_DEVICES nvidia-smi -L"
        )
        assert LISTED.findall(seen) == [(profile, status_data(name)["uuid"])], seen
        caps = kubectl("exec", name, "--", "ls", "/dev/nvidia-caps").split()
        assert len(caps) == 2, caps


def test_seven_small_ones_fill_one_gpu(node: str) -> None:
    names = [f"s{i}" for i in range(7)]
    for name in names:
        begin(node, name, "1g.10gb")
    for name in names:
        wait(f"pod/{name}", "condition=Ready")
    assert len({placed(node, name)[0] for name in names}) == 1
    assert on_hardware(node) == Counter(placed(node, name) for name in names)


def test_a_large_one_still_fits_beside_small_ones(node: str) -> None:
    start(node, a="1g.10gb", b="1g.10gb", c="3g.40gb", d="1g.10gb")
    assert len({placed(node, name)[0] for name in "abcd"}) == 1
    assert on_hardware(node) == Counter(placed(node, name) for name in "abcd")


def test_a_whole_gpu_and_its_partitions_exclude_each_other(node: str) -> None:
    start(node, whole0="", whole1="", whole2="", part="1g.10gb")
    begin(node, "late", "")
    wait("pod/late", "condition=PodScheduled=false")
    wholes = {
        devices(node)[allocated(f"whole{i}")]["attributes"]["uuid"]["string"] for i in range(3)
    }
    assert placed(node, "part")[0] not in wholes
    end("part")
    wait("pod/late", "condition=Ready")
    assert not instances(node)


@pytest.fixture
def spreading() -> Iterator[None]:
    """The policy `distributed`, for one test."""
    install("plugin.policy=distributed")
    yield
    install()


def test_four_small_ones_are_packed_onto_one_gpu(node: str) -> None:
    start(node, a="1g.10gb", b="1g.10gb", c="1g.10gb", d="1g.10gb")
    assert len({placed(node, name)[0] for name in "abcd"}) == 1


@pytest.mark.usefixtures("spreading")
def test_four_small_ones_are_distributed_over_four_gpus(node: str) -> None:
    start(node, a="1g.10gb", b="1g.10gb", c="1g.10gb", d="1g.10gb")
    assert len({placed(node, name)[0] for name in "abcd"}) == 4


def test_the_slices_admit_a_pool_of_every_device(node: str) -> None:
    """4 whole GPUs, and 7 + 4 + 3 + 2 + 1 partitions on each."""
    kinds = Counter(
        d["attributes"].get("profile", d["attributes"]["type"])["string"]
        for d in devices(node).values()
    )
    assert kinds == {
        "gpu": 4, "1g.10gb": 28, "1g.20gb": 16, "2g.20gb": 12, "3g.40gb": 8, "4g.40gb": 4
    }  # fmt: skip
    assert all(s["spec"]["driver"] == DRIVER for s in cluster.slices(node))
