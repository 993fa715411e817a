"""A cluster's slices and claims, as a dump has them: one list each, and nothing is changed.

Needs the right to list `resourceslices` and `resourceclaims`, of all namespaces.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.versions import discover
from driver.plan.dumps import Dump, make_dump
from driver.ports.resources import resource_claims, resource_slices

_WHERE: Final = "the cluster"


def read_cluster(*, kubeconfig: str, context: str, driver: str) -> Dump:
    """KubeError where the server does not answer or permit; ConfigError where none is named."""
    found = login(kubeconfig=kubeconfig, context=context)
    with closing(Client(found, user_agent="tessera-plan")) as api:
        version = discover(api).resource_version
        claims = api.list(resource_claims(version))
        slices = api.list(resource_slices(version), fields=f"spec.driver={driver}")
    return make_dump([(_WHERE, obj) for obj in (*slices.items, *claims.items)])
