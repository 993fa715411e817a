"""kubectl, helm and the nodes' shells, as few words as the tests need.

Run by `python -m hack.kind exec`, which puts the tools in PATH and points them at the cluster.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

REPO: Final = Path(__file__).resolve().parents[2]
NAMESPACE: Final = "tessera-system"
DRIVER: Final = "gpu.tessera.dev"
IMAGE: Final = "localhost/tessera:e2e"
PLUGIN_DIR: Final = f"/var/lib/kubelet/plugins/{DRIVER}"
CDI_DIR: Final = "/var/run/cdi"
PATIENCE: Final = 5
"""Seconds in which a pod that has all it needs is ready."""

Obj = dict[str, Any]


class Failed(Exception):
    """A command that failed, with what it said."""


def run(*command: str, input: str = "", timeout: float = 120) -> str:  # noqa: A002
    done = subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=timeout, check=False, cwd=REPO
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def kubectl(*words: str, input: str = "", timeout: float = 120) -> str:  # noqa: A002
    return run("kubectl", *words, input=input, timeout=timeout)


def get(*words: str) -> Obj:
    found: Obj = json.loads(kubectl("get", *words, "-o", "json"))
    return found


def apply(*objects: Obj) -> None:
    for obj in objects:
        kubectl("apply", "-f", "-", input=json.dumps(obj))


def wait(what: str, condition: str, *, seconds: int = 90, namespace: str = "default") -> None:
    """Until kubectl sees the condition; on time-out, the object and its events are shown.

    A pod that is not ready is changed now and then, so that its kubelet looks at it again. Else it
    would try a preparation that failed again after 60 to 90 seconds: the kubelet tells of it by an
    event, and is otherwise as content as if the pod ran.
    """
    patience = PATIENCE if what.startswith("pod/") and condition == "condition=Ready" else seconds
    deadline = time.monotonic() + seconds
    while True:
        words = ("-n", namespace, what)
        try:
            kubectl(
                "wait", *words, f"--for={condition}", f"--timeout={patience}s",
                timeout=patience + 30,
            )  # fmt: skip
        except Failed as error:
            if time.monotonic() + patience > deadline:
                raise Failed(f"{error}\n{kubectl('describe', *words)}") from None
        else:
            return
        kubectl("annotate", *words, "--overwrite", f"looked-at={time.monotonic()}")


def node_shell(node: str, *command: str, timeout: float = 120) -> str:
    return run("docker", "exec", node, *command, timeout=timeout)


def kill_container(node: str, name: str) -> None:
    """SIGKILL to the running container of that name on a node, as the kernel does it."""
    labels = f"labels.io.kubernetes.container.name=={name},runtime.name==io.containerd.runc.v2"
    ctr = ("ctr", "-n", "k8s.io")
    containers = node_shell(node, *ctr, "containers", "ls", "-q", labels).split()
    tasks = node_shell(node, *ctr, "tasks", "ls").splitlines()
    for task, _, state in (line.split() for line in tasks[1:]):
        if task in containers and state == "RUNNING":
            node_shell(node, *ctr, "tasks", "kill", "-s", "KILL", task)


def kind(*words: str, timeout: float = 300) -> str:
    return run(sys.executable, "-m", "hack.kind", *words, timeout=timeout)


def workers() -> list[str]:
    names = [n["metadata"]["name"] for n in get("nodes")["items"]]
    return sorted(n for n in names if "worker" in n)


def slices(node: str = "") -> list[Obj]:
    items = get("resourceslices")["items"]
    return [
        s for s in items if s["spec"]["driver"] == DRIVER and node in {"", s["spec"]["nodeName"]}
    ]


def devices(node: str) -> dict[str, Obj]:
    return {d["name"]: d for s in slices(node) for d in s["spec"].get("devices", [])}


def plugin_pod(node: str) -> Obj:
    items = get(
        "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=plugin",
        "--field-selector", f"spec.nodeName={node}",
    )["items"]  # fmt: skip
    (pod,) = [p for p in items if "deletionTimestamp" not in p["metadata"]]
    found: Obj = pod
    return found


def left_behind(node: str) -> list[str]:
    """CDI files and ledger entries on the node."""
    found = node_shell(
        node, "sh", "-c", f"ls {CDI_DIR} 2>/dev/null; ls {PLUGIN_DIR}/ledger | grep json || true"
    )
    return [name for name in found.split() if "tessera" in name or name.endswith(".json")]


def until(
    holds: Callable[[], bool], *, seconds: float = 60, why: Callable[[], object] = str
) -> None:
    """For what kubectl cannot wait for: asks twice a second."""
    deadline = time.monotonic() + seconds
    tick = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"not so after {seconds} s: {why()}")
        tick.wait(0.5)


def claim_template(name: str, *, count: int = 1) -> Obj:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def claim(name: str) -> Obj:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def pod(name: str, *, node: str = "", template: str = "", claim_name: str = "") -> Obj:
    source = (
        {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim_name}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "e2e"}},
        "spec": {
            "dnsPolicy": "Default",
            # Not 0: that is a forced deletion, after which the GPU is given away too early.
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "resourceClaims": [{"name": "gpu", **source}],
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "infinity"],
                    "securityContext": {"runAsUser": 0},
                    "resources": {"claims": [{"name": "gpu"}]},
                }
            ],
        },
    }
