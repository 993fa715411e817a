"""The plugin's pod: the least rights, and exactly the settings that the plugin has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driver.config.load import FILE_VARIABLE, load, variable
from driver.config.settings import PluginSettings
from driver.core.boards import Binding
from driver.core.ids import GpuUuid
from driver.core.modes import Mode, Rule
from driver.core.packing import Policy
from driver.core.snapshot import PciAddress
from tests.chart.render import E2E_VALUES, Chart, Object
from tests.chart.test_render import EVERYTHING, VALUES
from tests.docs.tables import OPERATIONS

RIGHTS = {
    ("resource.k8s.io", "resourceslices"): {"get", "list", "watch", "create", "update", "delete"},
    ("resource.k8s.io", "resourceclaims"): {"get", "list", "watch"},
    ("resource.k8s.io", "resourceclaims/status"): {"get", "patch"},
    ("resource.k8s.io", "resourceclaims/driver"): {
        "associated-node:patch",
        "associated-node:update",
    },
    ("", "nodes"): {"get"},
    ("", "nodes/status"): {"patch"},
}
EVENTS = {("events.k8s.io", "events"): {"create"}}
"""In the namespace of events about nodes alone."""
KINDS = {
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "DaemonSet",
    "DeviceClass",
}
OWN_VOLUMES = {"plugin-dir", "registry", "cdi", "driver-root"}


def environment(container: Object) -> dict[str, str]:
    """As the kubelet would set it on node `n1`."""
    fields = {"spec.nodeName": "n1", "metadata.uid": "0f3c9a52-pod"}
    return {
        each["name"]: each["value"]
        if "value" in each
        else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }


def settings(chart: Chart) -> PluginSettings:
    """What the plugin takes out of that environment and out of the file that is mounted; an unknown
    or wrong variable or key is an error.
    """
    file = None
    environ = environment(chart.container())
    if named := environ.get(FILE_VARIABLE):
        mounted, inside = mounts(chart.container())["settings"], Path(named)
        assert mounted["mountPath"] == str(inside.parent)
        assert mounted["readOnly"] is True
        config_map = chart.one("ConfigMap")
        volumes = {each["name"]: each for each in chart.pod()["volumes"]}
        assert volumes["settings"]["configMap"]["name"] == config_map["metadata"]["name"]
        file = chart.scratch / inside.name
        file.write_text(config_map["data"][inside.name])
    return load(PluginSettings, flags={}, environ=environ, file=file)


def mounts(container: Object) -> dict[str, Object]:
    return {each["name"]: each for each in container["volumeMounts"]}


def host_paths(pod: Object) -> dict[str, Object]:
    return {each["name"]: each["hostPath"] for each in pod["volumes"] if "hostPath" in each}


# -- rights


def test_the_service_account_may_do_what_is_listed_here_and_nothing_else(chart) -> None:
    objects = chart().render()
    assert {each["kind"] for each in objects} == KINDS
    (role,) = [each for each in objects if each["kind"] == "ClusterRole"]
    assert granted(role) == RIGHTS
    assert "aggregationRule" not in role
    about_nodes = chart().one("Role")
    assert granted(about_nodes) == EVENTS
    assert about_nodes["metadata"]["namespace"] == "default"
    for rule in role["rules"]:
        names = rule.pop("resourceNames", None)
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        # The status of a claim has entries of several drivers; ours are ours alone.
        assert names == (["gpu.tessera.dev"] if "driver" in rule["resources"][0] else None)


def granted(role: Object) -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_rights_are_those_that_the_page_for_operators_gives_reasons_for() -> None:
    rows = re.findall(r"^\| `(\w+[/\w]*)`: ([-:a-z, ]+) \|", OPERATIONS.read_text(), re.MULTILINE)
    told = {resource: set(verbs.split(", ")) for resource, verbs in rows}
    assert told == {resource: verbs for (_, resource), verbs in (RIGHTS | EVENTS).items()}


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_the_rights_are_bound_to_the_account_of_the_pod_alone(chart, kind) -> None:
    binding, role = chart().one(f"{kind}Binding"), chart().one(kind)
    account = chart().one("ServiceAccount")["metadata"]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": kind,
        "name": role["metadata"]["name"],
    }
    assert binding["metadata"].get("namespace") == role["metadata"].get("namespace")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    assert chart().pod()["serviceAccountName"] == account["name"]


def test_without_privileges_the_container_has_no_capability_and_gains_none(chart) -> None:
    context = chart(plugin={"privileged": False}).container()["securityContext"]
    assert context == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_a_privileged_container_is_stated_and_its_own_files_stay_read_only(chart) -> None:
    assert chart().container()["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "readOnlyRootFilesystem": True,
        "privileged": True,
    }


@pytest.mark.parametrize("values", VALUES)
def test_the_pod_shares_no_namespace_with_the_host_and_gets_no_service_variables(
    chart, values
) -> None:
    pod = chart(*VALUES[values]).pod()
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["enableServiceLinks"] is False
    assert not any("hostPort" in port for port in pod["containers"][0]["ports"])


def test_of_the_host_it_sees_four_folders_and_cannot_write_the_driver(chart) -> None:
    pod = chart().pod()
    assert {volume["name"] for volume in pod["volumes"]} == OWN_VOLUMES == set(host_paths(pod))
    mounted = mounts(pod["containers"][0])
    assert mounted.keys() == OWN_VOLUMES
    assert mounted["driver-root"]["readOnly"] is True
    assert host_paths(pod)["plugin-dir"]["path"] == "/var/lib/kubelet/plugins/gpu.tessera.dev"


# -- settings


@pytest.mark.parametrize("values", VALUES)
def test_every_variable_of_ours_is_a_setting_and_its_value_is_allowed(chart, values) -> None:
    container = chart(*VALUES[values]).container()
    names = [each["name"] for each in container["env"]]
    assert len(names) == len(set(names))
    known = {FILE_VARIABLE, *(variable(key) for key in PluginSettings.model_fields)}
    assert {name for name in names if name.startswith("TESSERA_")} <= known
    found = settings(chart(*VALUES[values]))
    assert (found.node_name, found.pod_uid) == ("n1", "0f3c9a52-pod")


def test_the_values_reach_the_settings(chart) -> None:
    found = settings(chart(EVERYTHING))
    assert found.driver_name == "gpu.example.com"
    assert found.driver_root == Path("/driver-root")
    assert found.host_driver_root == Path("/run/nvidia/driver")
    assert found.cdi_dir == Path("/etc/cdi")
    assert (found.log_level, found.log_format) == ("debug", "text")
    assert (found.rescan_seconds, found.resync_seconds) == (1.5, 86400)
    assert (found.recovery_seconds, found.orphan_grace_seconds) == (60, 30.5)
    assert found.nvml_idle_seconds == 15
    assert (found.health_seconds, found.nvml_hang_seconds) == (2.5, 30)
    assert (found.unknown_seconds, found.no_execute_faults) == (20, ("xid-95", "xid-79"))
    assert (found.probe_deadline_seconds, found.probe_period_seconds) == (12.5, 3600)
    assert found.xid_catalogue == Path("/extra/xids.json")
    assert (found.kmsg_path, found.kmsg_user_records) == (Path("/run/kmsg"), True)
    assert found.dcgm_url == "http://dcgm.example.com:9400/metrics"
    assert found.http_endpoint == ("", 9999)
    assert found.required_libraries == ("libcuda.so.1",)
    assert (found.policy, found.rerank) == (Policy.DISTRIBUTED, "dynamic")
    assert (found.profiles, found.binding) == (("1g.10gb", "1g.10gb+me"), Binding.PREPARE)
    assert (found.min_whole_gpus, found.partition_attributes) == (2, "full")
    assert found.rules == (
        Rule(mode=Mode.EXCLUDED, uuid=GpuUuid("GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c")),
        Rule(mode=Mode.STATIC, product="A100 40GB", index=0),
        Rule(mode=Mode.FULL, pci=PciAddress(domain=0, bus=1, device=0)),
    )


def test_a_static_order_reaches_the_settings(chart) -> None:
    assert settings(chart(plugin={"rerank": "static"})).rerank == "static"


def test_other_rules_for_gpus_make_another_pod_and_the_same_rules_do_not(chart) -> None:
    def mark(**rule: object) -> str:
        made = chart(plugin={"gpus": [{"match": {"index": 0}, **rule}]}).one("DaemonSet")
        return str(made["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    assert mark(mode="full") == mark(mode="full") != mark(mode="static")


def test_without_values_chart_and_plugin_have_the_same_defaults(chart) -> None:
    plain = load(PluginSettings, flags={}, environ={"TESSERA_NODE_NAME": "n1"}).model_dump()
    ours = settings(chart()).model_dump()
    assert {key for key, value in ours.items() if value != plain[key]} == {
        "pod_uid",
        "driver_root",
    }


@pytest.mark.parametrize("values", VALUES)
def test_folders_are_mounted_where_the_settings_look_for_them(chart, values) -> None:
    pod = chart(*VALUES[values]).pod()
    (container,) = pod["containers"]
    found, mounted = settings(chart(*VALUES[values])), mounts(container)
    outside = host_paths(pod)
    same_path = {
        "plugin-dir": found.plugin_dir,
        "registry": found.kubelet_registry_dir,
        "cdi": found.cdi_dir,
    }
    for name, path in same_path.items():
        assert mounted[name]["mountPath"] == outside[name]["path"] == str(path)
    assert mounted["driver-root"]["mountPath"] == str(found.driver_root)
    assert outside["driver-root"]["path"] == str(found.host_driver_root)
    assert mounted["driver-root"]["mountPropagation"] == "HostToContainer"


@pytest.mark.parametrize("values", VALUES)
def test_probes_ask_where_the_plugin_answers(chart, values) -> None:
    container = chart(*VALUES[values]).container()
    (port,) = container["ports"]
    endpoint = settings(chart(*VALUES[values])).http_endpoint
    assert endpoint is not None
    assert endpoint.port == port["containerPort"]
    probes = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {
        "livenessProbe": {"path": "/healthz", "port": port["name"]},
        "readinessProbe": {"path": "/readyz", "port": port["name"]},
    }


def test_the_plugin_outlasts_a_call_of_the_kubelet_at_its_end(chart) -> None:
    # 40 s for running calls and 5 s for threads: see driver/plugin/app.py.
    assert chart().pod()["terminationGracePeriodSeconds"] > 45


def test_the_next_plugin_of_a_node_serves_before_the_last_one_goes(chart) -> None:
    """Two pods on one node: sockets are named by pod UID, and no port of the node is taken."""
    made = chart()
    assert made.one("DaemonSet")["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert "hostNetwork" not in made.pod()
    assert not any("hostPort" in port for port in made.container()["ports"])
    assert environment(made.container())["TESSERA_POD_UID"] == "0f3c9a52-pod"


def test_the_plugin_stays_on_nodes_that_are_being_emptied(chart) -> None:
    assert {"effect": "NoExecute", "operator": "Exists"} in chart().pod()["tolerations"]


def test_the_simulated_nodes_need_no_privilege(chart) -> None:
    assert "privileged" not in chart(E2E_VALUES).container()["securityContext"]
