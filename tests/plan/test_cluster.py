"""`tessera plan` on a cluster: the same as on what kubectl prints of it."""

import json
from urllib.parse import unquote

import pytest

from driver.cli import main
from hack.fakeapi import ApiServer
from hack.fakeapi.faults import Answer
from tests.plan.given_cluster import claim_of, list_of, slices_of

WANT = ("--want", "gpu")


@pytest.fixture
def server():
    with ApiServer() as made:
        yield made


@pytest.fixture
def kubeconfig(server, tmp_path):
    return str(server.write_kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
def live(kubeconfig, capsys):
    def run(*arguments):
        code = main(["plan", "--kubeconfig", kubeconfig, *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def filled(server):
    """Two nodes of ours, one with a claim, and a slice of another driver."""
    slices = [*slices_of("node-1", 2), *slices_of("node-2")]
    others = slices_of("node-2")[-1]
    others["metadata"]["name"] = "other"
    others["spec"] |= {"driver": "nic.example.com", "devices": [{"name": "nic-0"}]}
    claim = claim_of("left", "node-1", "0:1g.10gb@6")
    for each in (*slices, others):
        server.cluster.create("resourceslices", each)
    status = claim.pop("status")
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}
    made = server.cluster.create("resourceclaims", {**claim, "spec": spec})
    server.cluster.update("resourceclaims", {**made, "status": status}, subresource="status")
    return server


def test_a_cluster_is_advised_on_as_what_kubectl_prints_of_it(filled, live, tmp_path, capsys):
    code, out, err = live(*WANT)
    assert (code, err) == (0, "")
    assert "room for gpu:" in out
    objects = [
        {"kind": kind, **obj}
        for kind in ("ResourceSlice", "ResourceClaim")
        for obj in filled.cluster.list(f"{kind.lower()}s")[0]
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps(list_of(*objects)))
    assert main(["plan", "--dump", str(dump), *WANT]) == 0
    assert capsys.readouterr().out == out


def test_only_slices_of_the_driver_are_asked_for_and_nothing_is_written(filled, live):
    filled.requests.clear()
    live()
    (listed,) = filled.requests.all("list", "resourceslices")
    assert "fieldSelector=spec.driver=gpu.tessera.dev&" in unquote(listed.path)
    assert filled.requests.writes() == []


def test_an_empty_cluster_names_the_driver_that_was_looked_for(live):
    code, out, err = live()
    assert (code, out) == (2, "")
    assert "no ResourceSlice of driver gpu.tessera.dev; set --driver-name" in err


def test_a_missing_right_is_a_failure_that_names_it(filled, live):
    filled.fail(Answer(status=403, reason="Forbidden"), verb="list", resource="resourceclaims")
    code, out, err = live()
    assert (code, out) == (1, "")
    assert "list resourceclaims" in err


def test_a_kubeconfig_that_is_not_there_is_named(capsys):
    assert main(["plan", "--kubeconfig", "/nowhere"]) == 2
    assert "the kubeconfig /nowhere" in capsys.readouterr().err
