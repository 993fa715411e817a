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
    "no time to end": (
        {"plugin": {"terminationGracePeriodSeconds": 0}},
        "/plugin/terminationGracePeriodSeconds",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused_by_name(chart, case) -> None:
    values, name = WRONG[case]
    with pytest.raises(Refused) as caught:
        chart(**values).render()
    assert name in str(caught.value)


def test_the_longest_driver_name_is_taken(chart) -> None:
    name = "gpu.company-name.example.eu"
    assert len(name) == 27
    assert chart(driverName=name).one("DeviceClass")["metadata"]["name"] == name
