"""Which resource.k8s.io is spoken, and what is said where there is none."""

from collections.abc import Mapping

import pytest

from driver.core.errors import KubeNotFound
from driver.kube.versions import choose, discover
from driver.ports.kube import ServerVersion
from driver.ports.resources import resource_slices
from hack.fakeapi import ApiServer, Settings
from hack.fakeapi.kinds import DEFAULT_SERVED
from tests.fakes.apiserver import objects
from tests.fakes.apiserver.running import Connect

V1_37 = ServerVersion(major=1, minor=37)


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        (["v1"], "v1"),
        (["v1beta1", "v1beta2", "v1"], "v1"),
        (["v1alpha3", "v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
    ],
)
def test_the_newest_version_that_we_know_is_chosen(served: list[str], chosen: str) -> None:
    assert choose(served, server=V1_37) == chosen


@pytest.mark.parametrize(
    ("served", "said"), [([], "does not serve it"), (["v2", "v1alpha3"], "only v1alpha3, v2")]
)
def test_a_server_without_a_version_that_we_know_is_named(served: list[str], said: str) -> None:
    with pytest.raises(KubeNotFound) as caught:
        choose(served, server=V1_37)
    assert "needs Kubernetes >= 1.34 with resource.k8s.io" in str(caught.value)
    assert said in str(caught.value)
    assert "this server is 1.37" in str(caught.value)


@pytest.mark.parametrize("git", ["v1.34.2", "v1.37.0-beta.0", "v1.36.1-eks-abc", "v1.35.4+k3s1"])
def test_versions_of_distributions_are_read(git: str, connect: Connect) -> None:
    with ApiServer(settings=Settings(git_version=git)) as server:
        assert connect(server).server_version().minor == int(git[3:5])


def served(*versions: str) -> Mapping[str, tuple[str, ...]]:
    return {**DEFAULT_SERVED, "resource.k8s.io": versions}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_slices_are_written_and_read_in_the_version_that_is_served(
    version: str, connect: Connect
) -> None:
    with ApiServer(settings=Settings(served=served(version))) as server:
        api = connect(server)
        facts = discover(api)
        assert facts.resource_version == version
        slices = resource_slices(facts.resource_version)
        device = objects.device("gpu-0", attributes={"index": {"int": 0}})
        if version == "v1beta1":
            device = {"name": "gpu-0", "basic": {"attributes": {"index": {"int": 0}}}}
        obj = objects.resource_slice("a", devices=[device])
        del obj["apiVersion"]
        stored = api.create(slices, obj)
        assert stored["apiVersion"] == f"resource.k8s.io/{version}"
        assert stored["spec"]["devices"] == [device]
        kept = server.cluster.get("resourceslices", "a")["spec"]["devices"]
        assert kept == [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}]


def test_a_cluster_with_the_group_switched_off_is_explained(connect: Connect) -> None:
    off = Settings(git_version="v1.33.0", served=served())
    with ApiServer(settings=off) as server, pytest.raises(KubeNotFound, match=r"is 1\.33 and"):
        discover(connect(server))
