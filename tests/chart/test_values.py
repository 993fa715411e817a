"""Wrong values are refused before anything is installed, by a message that names the value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.render import Refused

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"drivername": "gpu.example.com"}, "drivername"),
    "unknown key below plugin": ({"plugin": {"rescan": 5}}, "rescan"),
    "driver name too long": ({"driverName": "gpu.a-very-long-company.example"}, "/driverName"),
    "driver name in capitals": ({"driverName": "GPU.example.com"}, "/driverName"),
    "driver name empty": ({"driverName": ""}, "/driverName"),
    "relative driver root": ({"driverRoot": "run/nvidia/driver"}, "/driverRoot"),
    "relative kubelet root": ({"kubeletRoot": "var/lib/kubelet"}, "/kubeletRoot"),
    "relative CDI folder": ({"cdiDir": "cdi"}, "/cdiDir"),
    "path that climbs": ({"cdiDir": "/var/../run/cdi"}, "/cdiDir"),
    "no image": ({"image": {"repository": ""}}, "/image/repository"),
    "unknown pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    "unknown log level": ({"log": {"level": "trace"}}, "/log/level"),
    "unknown log format": ({"log": {"format": "xml"}}, "/log/format"),
    "rescan without a pause": ({"plugin": {"rescanSeconds": 0}}, "/plugin/rescanSeconds"),
    "resync longer than a day": ({"plugin": {"resyncSeconds": 1e6}}, "/plugin/resyncSeconds"),
    "time as text": ({"plugin": {"resyncSeconds": "5m"}}, "/plugin/resyncSeconds"),
    "port out of range": ({"plugin": {"httpPort": 65536}}, "/plugin/httpPort"),
    "privileged as text": ({"plugin": {"privileged": "no"}}, "/plugin/privileged"),
    "environment as a mapping": ({"plugin": {"env": {"A": "b"}}}, "/plugin/env"),
    "variable without a name": ({"plugin": {"env": [{"value": "b"}]}}, "/plugin/env/0"),
    "annotation that is a number": ({"plugin": {"podAnnotations": {"a": 1}}}, "podAnnotations/a"),
    "unknown policy": ({"plugin": {"policy": "random"}}, "/plugin/policy"),
    "unknown rerank": ({"plugin": {"rerank": True}}, "/plugin/rerank"),
    "fewer than no GPUs": ({"plugin": {"minWholeGPUs": -1}}, "/plugin/minWholeGPUs"),
    "GPUs kept whole where no claim is watched": (
        {"plugin": {"rerank": "static", "minWholeGPUs": 1}},
        "/plugin/minWholeGPUs",
    ),
    "profiles as text": ({"plugin": {"mig": {"profiles": "1g.10gb"}}}, "/plugin/mig/profiles"),
    "no profile": ({"plugin": {"mig": {"profiles": ["1g"]}}}, "/plugin/mig/profiles/0"),
    "unknown binding": ({"plugin": {"mig": {"binding": "late"}}}, "/plugin/mig/binding"),
    "unknown attributes": ({"plugin": {"mig": {"attributes": "all"}}}, "/plugin/mig/attributes"),
    "unknown key below mig": ({"plugin": {"mig": {"profile": []}}}, "/plugin/mig"),
    "rule without a mode": ({"plugin": {"gpus": [{"match": {"index": 0}}]}}, "/plugin/gpus/0"),
    "rule that matches all": (
        {"plugin": {"gpus": [{"match": {}, "mode": "full"}]}},
        "/plugin/gpus/0/match",
    ),
    "rule with an unknown key": (
        {"plugin": {"gpus": [{"match": {"name": "x"}, "mode": "full"}]}},
        "/plugin/gpus/0/match",
    ),
    "rule with an unknown mode": (
        {"plugin": {"gpus": [{"match": {"index": 0}, "mode": "mig"}]}},
        "/plugin/gpus/0/mode",
    ),
    "class of no profile": ({"deviceClasses": {"mig": ["3g"]}}, "/deviceClasses/mig/0"),
    "class without a profile": (
        {"deviceClasses": {"mig": [{"extendedResourceName": "example.com/a"}]}},
        "/deviceClasses/mig/0",
    ),
    "extended resource without a domain": (
        {"deviceClasses": {"extendedResourceName": "gpu"}},
        "/deviceClasses/extendedResourceName",
    ),
    "extended resource of Kubernetes": (
        {"deviceClasses": {"extendedResourceName": "a.kubernetes.io/gpu"}},
        "extendedResourceName a.kubernetes.io/gpu: kubernetes.io belongs to Kubernetes",
    ),
    "extended resource of Kubernetes for a profile": (
        {
            "deviceClasses": {
                "mig": [{"profile": "1g.5gb", "extendedResourceName": "kubernetes.io/a"}]
            }
        },
        "extendedResourceName kubernetes.io/a: kubernetes.io belongs to Kubernetes",
    ),
    "driver named as the class of its partitions": (
        {"driverName": "mig.example.com"},
        "driverName: mig.example.com begins like the DeviceClasses of partitions",
    ),
    "too little time to end": (
        {"plugin": {"terminationGracePeriodSeconds": 45}},
        "/plugin/terminationGracePeriodSeconds",
    ),
    "no such strategy": (
        {"plugin": {"updateStrategy": {"type": "Recreate"}}},
        "/plugin/updateStrategy/type",
    ),
    "an update that may replace nothing": (
        {"plugin": {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}},
        "/plugin/updateStrategy/rollingUpdate/maxUnavailable",
    ),
    "an update that surges and takes away": (
        {"plugin": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}}},
        "/plugin/updateStrategy/rollingUpdate/maxUnavailable",
    ),
    "an amount in words": (
        {"plugin": {"updateStrategy": {"rollingUpdate": {"maxSurge": "one"}}}},
        "/plugin/updateStrategy/rollingUpdate/maxSurge",
    ),
}


NEEDED = [
    "image",
    "image.pullPolicy",
    "driverName",
    "driverRoot",
    "kubeletRoot",
    "cdiDir",
    "log",
    "log.level",
    "log.format",
    "plugin",
    "plugin.privileged",
    "plugin.rescanSeconds",
    "plugin.health",
    "plugin.health.seconds",
    "plugin.procRoot",
    "plugin.health.kmsgUserRecords",
    "plugin.httpPort",
    "plugin.policy",
    "plugin.mig",
    "plugin.mig.binding",
    "plugin.terminationGracePeriodSeconds",
    "plugin.updateStrategy",
    "plugin.updateStrategy.type",
    "plugin.updateStrategy.rollingUpdate.maxSurge",
    "deviceClasses",
    "deviceClasses.create",
]


@pytest.mark.parametrize("key", NEEDED)
def test_a_value_without_which_nothing_works_cannot_be_taken_away(chart, key) -> None:
    *above, last = key.split(".")
    values: dict[str, Any] = {last: None}
    for each in reversed(above):
        values = {each: values}
    with pytest.raises(Refused, match=f"missing propert.*'{last}'"):
        chart(**values).render()


def test_lists_and_the_rolling_update_may_be_taken_away(chart) -> None:
    lists = {"env": None, "volumes": None, "tolerations": None, "gpus": None, "nodeSelector": None}
    strategy = {"type": "OnDelete", "rollingUpdate": None}
    mig = {"profiles": None}
    pod = chart(plugin={**lists, "mig": mig, "updateStrategy": strategy}).pod()
    assert "tolerations" not in pod


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused_by_name(chart, case) -> None:
    values, name = WRONG[case]
    with pytest.raises(Refused) as caught:
        chart(**values).render()
    assert name in str(caught.value)


def test_the_longest_driver_name_is_taken(chart) -> None:
    name = "gpu.company-name.example.eu"
    assert len(name) == 27
    assert chart(driverName=name).all("DeviceClass")[0]["metadata"]["name"] == name
