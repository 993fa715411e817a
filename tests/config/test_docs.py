"""docs/operations.md lists every setting and every value of the chart, as they are."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator

import yaml
from pydantic.fields import FieldInfo

from driver.config.load import variable
from driver.config.settings import PluginSettings
from driver.config.show import schema
from tests.docs.tables import REPO, check, table

CHART = REPO / "charts" / "tessera"
WHAT_VALUES_DO = {
    "image.repository": "image of the plugin",
    "image.tag": "its tag; the chart's `appVersion` where empty",
    "image.pullPolicy": "as in a container",
    "image.pullSecrets": "as in a pod",
    "driverName": "name of the DRA driver and of its DeviceClass; at most 27 characters",
    "driverRoot": "where the NVIDIA driver is on the host; see [Nodes](#nodes)",
    "kubeletRoot": "the kubelet's `--root-dir`",
    "cdiDir": "folder of CDI files that the container runtime reads",
    "log.level": "lowest level that is logged",
    "log.format": "`json`, or `text` for people",
    "plugin.privileged": "see [Rights](#rights)",
    "plugin.rescanSeconds": "seconds between two looks at the hardware",
    "plugin.resyncSeconds": "seconds between two full comparisons with the API server",
    "plugin.recoverySeconds": "seconds between two looks for what needs repair",
    "plugin.orphanGraceSeconds": (
        "seconds that a claim must be gone before its devices are taken back"
    ),
    "plugin.nvmlIdleSeconds": "seconds after which NVML is let go of when nobody asks; 0: never",
    "plugin.health.seconds": "seconds between two looks at the health of the GPUs",
    "plugin.health.nvmlHangSeconds": "seconds after which a look through NVML is given up",
    "plugin.health.unknownSeconds": "seconds after which what nobody can look at is withheld",
    "plugin.health.noExecuteFaults": (
        "faults that end pods; see [What is withheld](#what-is-withheld)"
    ),
    "plugin.health.probeDeadlineSeconds": "seconds after which a health probe is killed",
    "plugin.health.probePeriodSeconds": "seconds between probes that nothing asked for; 0: none",
    "plugin.health.xidCatalogue": "file of what each Xid means; empty: the one that is built in",
    "plugin.health.kmsgPath": "the kernel's log; see [Signs of health](#signs-of-health)",
    "plugin.health.kmsgUserRecords": "also believe what programs write there; for tests",
    "plugin.health.dcgmUrl": "metrics of a dcgm-exporter on the node; empty: none",
    "plugin.procRoot": "where /proc is read; elsewhere only for simulated hardware",
    "plugin.sysRoot": "where /sys is read; elsewhere only for simulated hardware",
    "plugin.httpPort": "port of probes and metrics",
    "plugin.policy": "`packed` or `distributed`; see [Packing](#packing)",
    "plugin.rerank": "`dynamic` or `static`; see [Packing](#packing)",
    "plugin.minWholeGPUs": "idle GPUs that new partitions stay away from",
    "plugin.mig.profiles": "profiles that may be made; empty: see [MIG profiles](#mig-profiles)",
    "plugin.mig.binding": "`scheduler` or `prepare`; see [Binding](#binding)",
    "plugin.mig.attributes": "`lean` or `full`; see [MIG profiles](#mig-profiles)",
    "plugin.gpus": "rules for the mode of certain GPUs; see [Modes](#modes)",
    "plugin.resources": "as in a container",
    "plugin.env": "more variables of the container, for settings that have no value here",
    "plugin.volumes": "more volumes of the pod",
    "plugin.volumeMounts": "more mounts of the container",
    "plugin.podAnnotations": "annotations of the pod",
    "plugin.nodeSelector": "which nodes get the plugin",
    "plugin.affinity": "as in a pod",
    "plugin.tolerations": "taints that do not keep the plugin away",
    "plugin.priorityClassName": "empty: none",
    "plugin.terminationGracePeriodSeconds": (
        "at least 46: the plugin waits 40 s for running calls and 5 s for its threads"
    ),
    "plugin.updateStrategy.type": "as in a DaemonSet",
    "plugin.updateStrategy.rollingUpdate.maxSurge": "plugins of a node that may overlap: 1, or 0",
    "plugin.updateStrategy.rollingUpdate.maxUnavailable": "nodes at a time without a plugin",
    "deviceClasses.create": "make the DeviceClasses; see [DeviceClasses](#deviceclasses)",
    "deviceClasses.extendedResourceName": "extended resource that means one whole GPU",
    "deviceClasses.mig": "profiles with a class of their own",
}


def test_every_setting_is_listed_with_its_default_and_what_is_allowed() -> None:
    document = schema(PluginSettings)
    properties, shared = document["properties"], document["$defs"]
    assert isinstance(properties, dict)
    assert isinstance(shared, dict)
    for each in properties.values():
        each.update(shared.get(str(each.get("$ref")).removeprefix("#/$defs/"), {}))
    rows = [
        (f"`{key}`", _default(key, field), _allowed(properties[key]), field.description or "")
        for key, field in PluginSettings.model_fields.items()
    ]
    check("settings", table(("setting", "default", "allowed", "what it is"), rows))


def test_the_example_of_a_variable_is_right() -> None:
    assert variable("log_level") == "TESSERA_LOG_LEVEL"


def test_every_value_of_the_chart_is_listed_with_its_default() -> None:
    values = dict(_flat(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert values.keys() == WHAT_VALUES_DO.keys()
    rows = [
        (f"`{key}`", f"`{json.dumps(default)}`", WHAT_VALUES_DO[key])
        for key, default in values.items()
    ]
    check("values", table(("value", "default", "what it is"), rows))


def test_every_value_that_the_schema_allows_has_a_default() -> None:
    allowed = json.loads((CHART / "values.schema.json").read_text())["properties"]
    allowed.pop("global")
    values = dict(_flat(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert set(_schema_keys(allowed)) == values.keys()


def _flat(values: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Down to what a user sets as a whole: `plugin.resources` is one value."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "resources":
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _schema_keys(properties: dict[str, dict[str, object]], prefix: str = "") -> Iterator[str]:
    for key, value in properties.items():
        below = value.get("properties")
        if isinstance(below, dict):
            yield from _schema_keys(below, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if key == "host_driver_root":
        return "`driver_root`"
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, tuple):
        default = ",".join(default).replace(platform.machine(), "<arch>")
    if isinstance(default, bool):
        default = str(default).lower()
    return "none" if default in {None, ""} else f"`{default}`"


def _allowed(properties: dict[str, object]) -> str:
    match properties:
        case {"enum": list(values)}:
            found = ", ".join(f"`{value}`" for value in values)
        case {"minimum": low, "maximum": high}:
            found = f"{low} to {high}"
        case {"minimum": low}:
            found = f"{low} or more"
        case {"maxLength": length}:
            found = f"DNS subdomain, at most {length} characters"
        case {"format": "hostname"}:
            found = "DNS subdomain"
        case {"format": "uri"}:
            found = "URL with http or https"
        case {"type": "boolean"}:
            found = "`true`, `false`"
        case {"format": "path"} | {"anyOf": [{"format": "path"}, *_]}:
            found = "absolute path"
        case {"items": {"$ref": "#/$defs/GpuRule"}}:
            found = "list of rules; see [Modes](#modes)"
        case {"type": "array"}:
            found = "list"
        case _:
            found = "text"
    return found
