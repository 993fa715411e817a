"""One run of `tessera plan`: read, advise, print."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TextIO

from driver.core.errors import ConfigError
from driver.core.ids import ClaimUID
from driver.core.simulation.kinds import kind_named
from driver.plan.advice import advise
from driver.plan.dumps import Dump, read_dump
from driver.plan.nodes import NodeView, nodes
from driver.plan.text import document, table


def run(chosen: Namespace, stdin: TextIO, out: TextIO) -> int:
    dump = _read(chosen, stdin)
    views = _chosen(nodes(dump, chosen.driver_name), chosen.driver_name, chosen.node)
    want = None
    if chosen.want is not None:
        want = kind_named("--want", chosen.want, dict.fromkeys(k for v in views for k in v.kinds()))
    advice = [advise(view, want) for view in views]
    claimed = {
        ClaimUID(c.metadata.uid): f"{c.metadata.namespace}/{c.metadata.name}" for c in dump.claims
    }
    write = document if chosen.json else table
    out.write(write(advice, chosen.want, claimed))
    return 0


def _read(chosen: Namespace, stdin: TextIO) -> Dump:
    files = chosen.dump, chosen.slices, chosen.claims
    cluster = chosen.kubeconfig, chosen.context
    if any(file is not None for file in files):
        if any(flag is not None for flag in cluster):
            raise ConfigError(
                "--kubeconfig and --context name a cluster, --dump, --slices and --claims files;"
                " give one or the other"
            )
        return read_dump(*files, stdin)
    from driver.plan.cluster import read_cluster  # noqa: PLC0415 - files need no API client

    return read_cluster(
        kubeconfig=chosen.kubeconfig or "",
        context=chosen.context or "",
        driver=chosen.driver_name,
    )


def _chosen(views: Sequence[NodeView], driver: str, node: str | None) -> Sequence[NodeView]:
    if not views:
        raise ConfigError(f"there is no ResourceSlice of driver {driver}; set --driver-name")
    found = [view for view in views if node in {None, view.node}]
    if not found:
        known = ", ".join(view.node for view in views)
        raise ConfigError(f"--node: there is no {node!r}; allowed: {known}")
    return found
