"""kind's configuration: each switch answers one fact of the machine."""

import ipaddress
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from hack.kind import config, nodeimage
from hack.kind.config import NodeNetwork, Wanted
from hack.kind.host import Host, apt_mirror, has_capability
from hack.kind.shell import Failure

OLD = Host(cgroup_v1=True, may_raise_limits=False)
NEW = Host(cgroup_v1=False, may_raise_limits=True)


def wanted(*, own: bool = True, workers: int = 2) -> Wanted:
    return Wanted(workers=workers, preset="h100x2", image="node:1", own=own)


def rendered(host: Host, *, own: bool = True) -> dict[str, Any]:
    plan = wanted(own=own)
    mounts = {name: [{"hostPath": f"/{name}"}] for name in plan.worker_names}
    document: dict[str, Any] = json.loads(
        config.render(plan, host, audit=Path("/audit"), mounts=mounts)
    )
    return document


def patches(host: Host, *, own: bool = True) -> dict[str, Any]:
    texts = rendered(host, own=own)["kubeadmConfigPatches"]
    return {patch.pop("kind"): patch for patch in map(json.loads, texts)}


@pytest.mark.parametrize(("v1", "limits", "own"), list(itertools.product([True, False], repeat=3)))
def test_each_fact_of_the_machine_turns_exactly_its_own_switches(v1: bool, limits: bool, own: bool):
    found = patches(Host(cgroup_v1=v1, may_raise_limits=limits), own=own)
    kubelet, proxy = (found.get(f"Kube{name}Configuration", {}) for name in ("let", "Proxy"))
    assert ("failCgroupV1" in kubelet) is v1
    assert ("cgroupDriver" in kubelet) is (v1 and own)
    assert ("oomScoreAdj" in kubelet) is ("maxOpenFiles" in kubelet) is (not limits)
    assert ("oomScoreAdj" in proxy) is (not limits)
    assert ("conntrack" in proxy) is own
    assert ("InitConfiguration" in found) is own


def test_a_capable_machine_with_the_official_image_gets_the_audit_log_and_nothing_else():
    assert list(patches(NEW, own=False)) == ["ClusterConfiguration"]
    networking = rendered(NEW, own=False)["networking"]
    assert "disableDefaultCNI" not in networking
    assert "kubeProxyMode" not in networking


def test_the_api_server_logs_to_a_folder_that_the_host_can_read():
    document = rendered(OLD)
    api = patches(OLD)["ClusterConfiguration"]["apiServer"]
    arguments = {a["name"]: a["value"] for a in api["extraArgs"]}
    mounted = {m["containerPath"]: m["hostPath"] for m in document["nodes"][0]["extraMounts"]}
    assert mounted[str(Path(arguments["audit-log-path"]).parent)] == "/audit"
    assert mounted[arguments["audit-policy-file"]] == "/audit/policy.json"
    in_pod = {v["mountPath"]: v["readOnly"] for v in api["extraVolumes"]}
    assert in_pod == {config.AUDIT_FOLDER: False, config.AUDIT_POLICY: True}


def test_every_worker_gets_its_own_gpus_under_kinds_name_for_it():
    workers = [n for n in rendered(OLD)["nodes"] if n["role"] == "worker"]
    names = ["/tessera-worker", "/tessera-worker2"]
    assert [n["extraMounts"][0]["hostPath"] for n in workers] == names


def test_routes_lead_to_every_other_node_and_never_to_the_own_one():
    nodes = [
        NodeNetwork(
            name=f"n{i}",
            address=ipaddress.IPv4Address(f"172.18.0.{i}"),
            pods=ipaddress.IPv4Network(f"10.244.{i}.0/24"),
        )
        for i in (1, 2, 3)
    ]
    assert config.routes(nodes[1], nodes) == (
        "route replace 10.244.1.0/24 via 172.18.0.1\nroute replace 10.244.3.0/24 via 172.18.0.3\n"
    )
    ipam = json.loads(config.conflist(nodes[1]))["plugins"][0]["ipam"]
    assert ipam["ranges"] == [[{"subnet": "10.244.2.0/24"}]]


CONTAINERD = """
    SystemdCgroup = true
  sandbox_image = "registry.k8s.io/pause:3.10"
  restrict_oom_score_adj = false
"""


@pytest.mark.parametrize(("host", "expected"), [(OLD, ("false", "true")), (NEW, ("true", "false"))])
def test_containerd_is_set_for_the_machine(tmp_path: Path, host: Host, expected: tuple[str, str]):
    path = tmp_path / "config.toml"
    path.write_text(CONTAINERD)
    nodeimage.containerd_settings(path, host, {"pause": "registry.k8s.io/pause:3.10.2"})
    text = path.read_text()
    assert f"SystemdCgroup = {expected[0]}" in text
    assert f"restrict_oom_score_adj = {expected[1]}" in text
    assert 'sandbox_image = "registry.k8s.io/pause:3.10.2"' in text


def test_a_setting_that_kinds_file_no_longer_has_is_named(tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text(CONTAINERD.replace("SystemdCgroup", "systemdCgroup"))
    with pytest.raises(Failure, match="no `SystemdCgroup = true`"):
        nodeimage.containerd_settings(path, OLD, {"pause": "p"})


def test_capabilities_and_cgroup_version_are_read_from_the_machine(tmp_path: Path):
    assert has_capability("Name:\tx\nCapEff:\t000001ffffffffff\n", 24)
    assert not has_capability("Name:\tx\nCapEff:\t000001fffeffffff\n", 24)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("CapEff:\t000001fffeffffff\n")
    assert Host.detect(proc=tmp_path, cgroup=tmp_path) == OLD
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert not Host.detect(proc=tmp_path, cgroup=tmp_path).cgroup_v1


DEB822 = """# a comment
Types: deb
URIs: http://mirror.test/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
"""


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("sources.list.d/debian.sources", DEB822, "http://mirror.test/debian"),
        (
            "sources.list",
            "# x\ndeb [signed-by=/k] http://m.test/d bookworm main\n",
            "http://m.test/d",
        ),
        ("sources.list", "deb http://m.test/d trixie main\n", None),
    ],
)
def test_the_machines_own_mirror_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, expected: str | None
):
    monkeypatch.delenv("TESSERA_DEBIAN_MIRROR", raising=False)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)
    assert apt_mirror(tmp_path) == expected
