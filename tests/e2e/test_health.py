"""What is sick gets no pod, says why, and comes back by itself when it has proved itself."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e import audit, cluster, hardware
from tests.e2e.cluster import (
    DRIVER,
    NAMESPACE,
    PLUGIN_DIR,
    Obj,
    apply,
    claim,
    devices,
    get,
    kubectl,
    pod,
    until,
    wait,
)
from tests.e2e.test_partitions import mig_claim, status_data

FAULT = f"{DRIVER}/fault"


@pytest.fixture(scope="module", autouse=True)
def healthy() -> None:
    """As on a new node: what returns within a day needs more each time, also over runs of these
    tests on one cluster.
    """
    node = cluster.workers()[0]
    hardware.boot(node)
    cluster.node_shell(node, "rm", "-f", f"{PLUGIN_DIR}/evidence.json")
    cluster.kill_container(node, "plugin")
    name = cluster.plugin_pod(node)["metadata"]["name"]
    until(lambda: restarts(name) > 0 and is_ready(name), seconds=90)
    await_all_well(node, seconds=120)


@pytest.fixture
def node(worker: str) -> str:
    """The worker with two GPUs."""
    return worker


def run_on_gpu(node: str, name: str) -> str:
    """A pod with a whole GPU, running; the GPU's UUID."""
    apply(claim(name), pod(name, claim_name=name, node=node))
    wait(f"pod/{name}", "condition=Ready")
    return gpu_of(node, name)


def gpu_of(node: str, name: str) -> str:
    device = get("resourceclaim", name)["status"]["allocation"]["devices"]["results"][0]["device"]
    uuid: str = devices(node)[device]["attributes"]["uuid"]["string"]
    return uuid


def of_gpu(node: str, uuid: str) -> list[Obj]:
    """The devices of one GPU: itself, and every partition of it."""
    return [
        d
        for d in devices(node).values()
        if uuid in {a.get("string") for a in d["attributes"].values()}
    ]


def faults(found: list[Obj]) -> set[str]:
    """Of each device the fault that it is withheld for; empty for none."""
    return {next((t["value"] for t in d.get("taints", ()) if t["key"] == FAULT), "") for d in found}


def unwell(node: str) -> dict[str, Any]:
    return {d["name"]: d["taints"] for d in devices(node).values() if d.get("taints")}


def await_all_well(node: str, seconds: float = 60) -> None:
    until(lambda: not unwell(node), seconds=seconds, why=lambda: unwell(node))


def condition(node: str) -> tuple[str, str]:
    found = {c["type"]: c for c in get("node", node)["status"]["conditions"]}.get("GPUReady", {})
    return found.get("status", ""), found.get("message", "")


def proved_again(node: str, uuid: str) -> None:
    """What an administrator does, and what follows by itself. That a GPU was reset is seen by the
    mark in it that goes away.
    """
    hardware.recovery(node, uuid, 1)
    until(lambda: "" not in faults(of_gpu(node, uuid)), why=lambda: unwell(node))
    until(lambda: "recovery-action" in explained(node, uuid), why=lambda: explained(node, uuid))
    hardware.reset(node, uuid)
    await_all_well(node)


def explained(node: str, device: str) -> str:
    """What an administrator is told on the node."""
    plugin = cluster.plugin_pod(node)["metadata"]["name"]
    return kubectl("exec", "-n", NAMESPACE, plugin, "--", "tessera", "explain", device)


def booted(node: str) -> None:
    """The plugin reads the boot id when it starts, as it does after a real boot."""
    hardware.boot(node)
    kubectl("delete", "pod", "-n", NAMESPACE, cluster.plugin_pod(node)["metadata"]["name"])
    await_all_well(node, seconds=120)


@contextmanager
def every_version(node: str) -> Iterator[list[Obj]]:
    """Each version of each slice of the node that the API server has had meanwhile."""
    seen: list[Obj] = []
    watching = subprocess.Popen(
        [
            "kubectl", "get", "resourceslices", "-o", "json", "--watch",
            f"--field-selector=spec.driver={DRIVER},spec.nodeName={node}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield seen
    finally:
        watching.terminate()
        text, decoder = watching.communicate(timeout=30)[0], json.JSONDecoder()
        while text := text.lstrip():
            obj, end = decoder.raw_decode(text)
            seen.append(obj)
            text = text[end:]


def test_an_xid_79_withholds_its_gpu_and_leaves_the_pod_that_runs_on_it(node: str) -> None:
    sick = run_on_gpu(node, "held")
    began = time.monotonic()
    hardware.xid(node, sick, 79, text="GPU has fallen off the bus.")
    until(lambda: faults(of_gpu(node, sick)) == {"xid-79"}, seconds=10)
    assert time.monotonic() - began < 5  # kubectl's own time included
    others = [d for d in devices(node).values() if d not in of_gpu(node, sick)]
    assert faults(others) == {""}
    until(lambda: condition(node)[0] == "False")
    assert "xid-79" in condition(node)[1]

    def told() -> list[Obj]:
        (status,) = get("pod", "held")["status"]["containerStatuses"]
        return [r for each in status.get("allocatedResourcesStatus", ()) for r in each["resources"]]

    until(lambda: {r["health"] for r in told()} == {"Unhealthy"}, why=told)
    assert "xid-79" in told()[0].get("message", "xid-79")
    wait("pod/held", "condition=Ready")
    # The other GPU is still there for others; a third pod finds nothing.
    other = run_on_gpu(node, "other")
    assert other != sick
    apply(claim("third"), pod("third", claim_name="third", node=node))
    until(lambda: "cannot allocate all claims" in kubectl("describe", "pod", "third"))
    # A restart forgets nothing, and at no moment says anything else.
    with every_version(node) as versions:
        cluster.kill_container(node, "plugin")
        name = cluster.plugin_pod(node)["metadata"]["name"]
        until(lambda: restarts(name) > 0 and is_ready(name), seconds=90)
        time.sleep(2)  # for a write that must not come, there is no event to wait for
    mine = [
        d
        for each in versions
        for d in each["spec"].get("devices", ())
        if sick in {a.get("string") for a in d["attributes"].values()}
    ]
    assert mine
    assert faults(mine) == {"xid-79"}
    # Only a new boot and a passed probe bring it back.
    kubectl("delete", "pod", "held", "other", "third", "--wait")
    booted(node)
    assert run_on_gpu(node, "after-1") != run_on_gpu(node, "after-2")


def restarts(name: str) -> int:
    (status,) = get("pod", "-n", NAMESPACE, name)["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count


def is_ready(name: str) -> bool:
    (status,) = get("pod", "-n", NAMESPACE, name)["status"]["containerStatuses"]
    return bool(status["ready"])


def test_an_applications_own_errors_withhold_nothing(node: str) -> None:
    uuid = run_on_gpu(node, "app")
    since = audit.position()
    for code in (43, 13, 31, 45):
        hardware.xid(node, uuid, code, text="pid=7, name=python3, Ch 00000008")
    # A state that only degrades comes behind them, so that it is known that they were read.
    with hardware.machine(node) as machine:
        machine.gpus[hardware.slot_of(node, uuid)].set(remap_pending=1)

    def said() -> set[tuple[str, str]]:
        return {(t["value"], t["effect"]) for found in unwell(node).values() for t in found}

    until(lambda: said() == {("row-remap-pending", "None")}, why=said)
    assert len(audit.writes(since)) <= 3
    run_on_gpu(node, "beside")
    kubectl("delete", "pod", "app", "beside", "--wait")
    hardware.reset(node, uuid)
    await_all_well(node)


def test_a_fault_of_one_partition_leaves_its_siblings(node: str) -> None:
    for name in ("left", "right"):
        apply(mig_claim(name, "1g.10gb"), pod(name, claim_name=name, node=node))
        wait(f"pod/{name}", "condition=Ready")
    data = status_data("left")
    assert data["parentUUID"] == status_data("right")["parentUUID"]
    hardware.xid(node, data["parentUUID"], 46, instance=data["gpuInstance"])
    until(lambda: "xid-46" in faults(of_gpu(node, data["parentUUID"])))
    mine = [d for d in of_gpu(node, data["parentUUID"]) if faults([d]) == {"xid-46"}]
    (held,) = get("resourceclaim", "left")["status"]["allocation"]["devices"]["results"]
    assert held["device"] in {d["name"] for d in mine}
    small = [d for d in of_gpu(node, data["parentUUID"]) if "1g10gb" in d["name"]]
    assert [faults([d]) for d in small].count({""}) == len(small) - 1
    apply(mig_claim("third", "1g.10gb"), pod("third", claim_name="third", node=node))
    wait("pod/third", "condition=Ready")
    assert status_data("third")["parentUUID"] == data["parentUUID"]
    kubectl("delete", "pod", "left", "right", "third", "--wait")
    proved_again(node, data["parentUUID"])


def test_a_gpu_that_was_reset_and_probed_is_given_out_again_without_a_restart(node: str) -> None:
    uuid = run_on_gpu(node, "a")
    before = cluster.plugin_pod(node)["metadata"]["uid"], restarts_of_plugin(node)
    hardware.recovery(node, uuid, 1)
    hardware.xid(node, uuid, 119, text="Timeout after 6s of waiting for RPC response")
    until(lambda: faults(of_gpu(node, uuid)) == {"xid-119"}, why=lambda: unwell(node))
    kubectl("delete", "pod", "a", "--wait")
    kubectl("delete", "resourceclaim", "a", "--wait")
    proved_again(node, uuid)
    assert (cluster.plugin_pod(node)["metadata"]["uid"], restarts_of_plugin(node)) == before
    assert uuid in {run_on_gpu(node, "b"), run_on_gpu(node, "c")}
    until(lambda: condition(node)[0] == "True")


def restarts_of_plugin(node: str) -> int:
    return restarts(cluster.plugin_pod(node)["metadata"]["name"])


def test_a_pod_that_insists_on_a_withheld_gpu_is_told_why(node: str) -> None:
    uuid = run_on_gpu(node, "probe")
    kubectl("delete", "pod", "probe", "--wait")
    kubectl("delete", "resourceclaim", "probe", "--wait")
    hardware.recovery(node, uuid, 1)
    hardware.xid(node, uuid, 140, text="Unrecovered ECC error")
    until(lambda: faults(of_gpu(node, uuid)) == {"xid-140"}, why=lambda: unwell(node))
    stubborn = claim("stubborn")
    (request,) = stubborn["spec"]["devices"]["requests"]
    request["exactly"]["tolerations"] = [{"key": FAULT, "operator": "Exists"}]
    request["exactly"]["selectors"] = [
        {"cel": {"expression": f'device.attributes["{DRIVER}"].uuid == "{uuid}"'}}
    ]
    apply(stubborn, pod("stubborn", claim_name="stubborn", node=node))

    def told() -> str:
        return kubectl("describe", "pod", "stubborn")

    until(lambda: "is withheld" in told(), seconds=60, why=told)
    assert re.search(r"device gpu-[0-9a-f]{8} is withheld: xid-140 .*since 20.*clears by", told())
    kubectl("delete", "pod", "stubborn", "--wait")
    kubectl("delete", "resourceclaim", "stubborn", "--wait")
    proved_again(node, uuid)


def test_an_nvml_that_hangs_makes_gpus_unknown_and_kills_nobody(node: str) -> None:
    name = cluster.plugin_pod(node)["metadata"]["name"]
    before = restarts(name)
    # A call that hangs has begun when the rule goes: its delay is waited for to the end.
    with hardware.machine(node) as machine, machine.rule("nvmlDeviceGet*", delay_ms=40_000):
        until(
            lambda: (
                {t["key"] for found in unwell(node).values() for t in found}
                == {f"{DRIVER}/unknown"}
            ),
            seconds=90,
            why=lambda: unwell(node),
        )
        assert len(unwell(node)) == len(devices(node))
        assert restarts(name) == before
        until(lambda: condition(node)[0] == "Unknown")
    await_all_well(node, seconds=120)
    assert restarts(name) == before
