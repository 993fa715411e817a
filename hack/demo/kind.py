"""`make kind-demo`: the demonstration's story on a real cluster, told by kubectl.

Run by `python -m hack.kind exec`; installs the chart, starts three pods on a node with two GPUs,
ends one, and leaves the cluster as it was, but for the chart.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

REPO: Final = Path(__file__).resolve().parents[2]
IMAGE: Final = "localhost/tessera:e2e"
DRIVER: Final = "gpu.tessera.dev"
LABEL: Final = "app=tessera-demo"


def main() -> None:
    repository, tag = IMAGE.rsplit(":", 1)
    show(
        "One helm command installs it",
        "helm", "upgrade", "--install", "tessera", str(REPO / "charts" / "tessera"),
        "--namespace", "tessera-system", "--create-namespace",
        "--values", str(REPO / "tests" / "e2e" / "values.yaml"),
        "--set", f"image.repository={repository}", "--set", f"image.tag={tag}", "--wait",
    )  # fmt: skip
    show("What the nodes offer", "kubectl", "get", "resourceslices")
    node = output("kubectl", "get", "resourceslices", "-o", "jsonpath={.items[0].spec.nodeName}")
    try:
        story(node)
    finally:
        show("The end", "kubectl", "delete", "pods,resourceclaimtemplates", "-l", LABEL, "--wait")


def story(node: str) -> None:
    apply(template())
    for name in ("train", "serve", "batch"):
        apply(pod(name, node))
    for name in ("train", "serve"):
        run("kubectl", "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=90s")
    show("Three pods, two GPUs: the third waits", "kubectl", "get", "pods", "-l", LABEL)
    show(
        "What train got",
        "kubectl", "exec", "train", "--", "sh", "-c", "env | grep TESSERA; ls -l /dev/nvidia*",
    )  # fmt: skip
    show("train ends", "kubectl", "delete", "pod", "train", "--wait")
    run("kubectl", "wait", "pod/batch", "--for=condition=Ready", "--timeout=90s")
    show("and batch has its GPU", "kubectl", "get", "pods,resourceclaims")


def template() -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu", "labels": labels()},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str, node: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels()},
        "spec": {
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "containers": [container],
        },
    }


def labels() -> dict[str, str]:
    key, value = LABEL.split("=")
    return {key: value}


def apply(obj: dict[str, Any]) -> None:
    run("kubectl", "apply", "-f", "-", given=json.dumps(obj))


def show(title: str, *command: str) -> None:
    """The command as one would type it, and what it says."""
    print(f"\n## {title}\n$ {' '.join(command)}", flush=True)
    subprocess.run(command, check=True)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(*command: str, given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


if __name__ == "__main__":
    main()
