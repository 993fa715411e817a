"""The cluster with Tessera in it: installed once by helm, cleaned after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cluster
from tests.e2e.cluster import IMAGE, NAMESPACE, kubectl, run, workers

HERE = Path(__file__).parent
VALUES = HERE / "values.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The hook sees the items of the whole session, not of this folder.
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(300))


def install(*settings: str) -> None:
    """`helm upgrade --install`, as an administrator would; a new image is a new pod."""
    repository, tag = IMAGE.rsplit(":", 1)
    digest = run("docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip()
    chosen = (f"image.repository={repository}", f"image.tag={tag}", *settings)
    run(
        "helm", "upgrade", "--install", "tessera", "charts/tessera",
        "--namespace", NAMESPACE, "--create-namespace",
        "--values", str(VALUES),
        *(word for setting in chosen for word in ("--set", setting)),
        "--set-string", f"plugin.podAnnotations.image={digest}",
        "--wait", "--timeout", "180s",
        timeout=240,
    )  # fmt: skip
    # A DaemonSet's update is awaited too: `--wait` is content while old pods are still ready.
    kubectl("rollout", "status", "daemonset", "-n", NAMESPACE, "tessera-plugin", "--timeout=120s")


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    install()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Each test leaves no pod, no claim, and nothing on any node."""
    yield
    kubectl("delete", "pods", "-l", "app=e2e", "--ignore-not-found", "--wait")
    kubectl("delete", "resourceclaims,resourceclaimtemplates", "--all", "--wait")
    for node in workers():
        cluster.until(
            lambda node=node: not cluster.left_behind(node),  # type: ignore[misc]
            why=lambda node=node: cluster.left_behind(node),  # type: ignore[misc]
        )


@pytest.fixture
def worker() -> str:
    return workers()[0]
