"""The examples of the README, as they stand there but for the image, on a real cluster."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.e2e import cluster
from tests.e2e.cluster import IMAGE, REPO, Obj, apply, get, kubectl, wait, workers
from tests.e2e.test_partitions import on_hardware

BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```", (REPO / "README.md").read_text(), re.MULTILINE | re.DOTALL
)
EXAMPLES: dict[str, list[Obj]] = {
    documents[0]["metadata"]["name"]: documents
    for documents in ([*yaml.safe_load_all(block)] for block in BLOCKS)
    if documents[0]["kind"] == "ResourceClaimTemplate"
}


@pytest.fixture
def node() -> str:
    return workers()[1]


def run_example(name: str, node: str) -> str:
    """Apply it and wait for its pod, or for a plain one where the README shows none; its name."""
    template, *pods = EXAMPLES[name]
    apply(template)
    (pod,) = pods or [cluster.pod("example", template=name)]
    pod["metadata"].setdefault("labels", {})["app"] = "e2e"
    spec = pod["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec |= {"dnsPolicy": "Default", "terminationGracePeriodSeconds": 1}
    for container in spec["containers"]:
        container |= {
            "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]
        }  # fmt: skip
    apply(pod)
    wait(f"pod/{pod['metadata']['name']}", "condition=Ready")
    found: str = pod["metadata"]["name"]
    return found


def results(pod: str) -> list[Obj]:
    (status,) = get("pod", pod)["status"]["resourceClaimStatuses"]
    claim = get("resourceclaim", status["resourceClaimName"])
    found: list[Obj] = claim["status"]["allocation"]["devices"]["results"]
    return found


def own_devices(pod: str, container: str = "") -> list[str]:
    """UUIDs in the variables that each device sets for itself."""
    chosen = ("-c", container) if container else ()
    environment = kubectl("exec", pod, *chosen, "--", "env").splitlines()
    return [line.partition("=")[2] for line in environment if line.startswith("TESSERA_DEVICE_")]


def test_the_readme_shows_these_examples() -> None:
    assert [*EXAMPLES] == [
        "one-gpu", "one-1g", "two-on-one-gpu", "small-or-larger", "from-20-to-45-gib"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["one-gpu", "one-1g"])
def test_a_single_device(name: str, node: str) -> None:
    pod = run_example(name, node)
    (uuid,) = own_devices(pod)
    assert uuid.startswith("GPU-" if name == "one-gpu" else "MIG-")


def test_two_partitions_of_one_gpu_each_in_its_container(node: str) -> None:
    pod = run_example("two-on-one-gpu", node)
    (serve,), (embed,) = own_devices(pod, "serve"), own_devices(pod, "embed")
    assert serve != embed
    assert sorted((profile, count) for (_, profile, _), count in on_hardware(node).items()) == [
        ("1g.10gb", 1),
        ("3g.40gb", 1),
    ]
    assert len({gpu for gpu, _, _ in on_hardware(node)}) == 1


def test_the_first_of_a_list_that_can_be_had(node: str) -> None:
    pod = run_example("small-or-larger", node)
    (result,) = results(pod)
    assert result["request"] == "gpu/small"
    assert len(own_devices(pod)) == 1


def test_any_partition_that_is_large_enough(node: str) -> None:
    (result,) = results(run_example("from-20-to-45-gib", node))
    device = cluster.devices(node)[result["device"]]
    assert device["attributes"]["profile"]["string"] in {"3g.40gb", "4g.40gb"}
