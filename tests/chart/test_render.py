"""What helm makes of the chart: accepted by every Kubernetes that it is for, and no surprise."""

from __future__ import annotations

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.chart.render import E2E_VALUES, KUBERNETES, Chart, Object, Refused

HERE = Path(__file__).resolve().parent
EVERYTHING = HERE / "everything.yaml"
VALUES = {"default": (), "e2e": (E2E_VALUES,), "everything": (EVERYTHING,)}
REFRESH = "REFRESH_GOLDEN"


@pytest.mark.parametrize("values", VALUES)
def test_lint_finds_nothing(chart, values) -> None:
    said = chart(*VALUES[values]).lint()
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("values", VALUES)
def test_the_rendering_is_the_one_that_was_reviewed(chart, values) -> None:
    """A wanted change is taken over with REFRESH_GOLDEN=1; the difference is then reviewed."""
    golden = HERE / "golden" / f"{values}.yaml"
    rendered = yaml.safe_dump_all(chart(*VALUES[values]).render(), sort_keys=False, width=100)
    if os.environ.get(REFRESH) == "1":
        golden.write_text(rendered)
    assert rendered == golden.read_text(), f"run again with {REFRESH}=1 if this is wanted"


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VALUES)
def test_every_object_has_the_schema_of_every_kubernetes_version(chart, values, version) -> None:
    objects = chart(*VALUES[values]).render(kubernetes=version)
    for each in objects:
        short = version.rpartition(".")[0]
        assert kubernetes_validate.validate(each, version, strict=True) == short, each["kind"]


def test_the_validation_sees_a_field_that_does_not_exist(chart) -> None:
    daemon_set = chart().one("DaemonSet")
    daemon_set["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(daemon_set, KUBERNETES[-1], strict=True)


def test_a_kubernetes_without_resource_v1_is_refused(chart) -> None:
    with pytest.raises(Refused, match=r"1\.33\.9"):
        chart().render(kubernetes="1.33.9")


@pytest.mark.parametrize("values", VALUES)
def test_objects_of_one_release_are_told_from_those_of_another(chart, values) -> None:
    for each in chart(*VALUES[values]).render():
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "tessera"
        assert labels["app.kubernetes.io/name"] == "tessera"
    selector = chart().one("DaemonSet")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= _pod_labels(chart().one("DaemonSet")).items()


def selectors(chart: Chart) -> dict[str, str]:
    return {
        made["metadata"]["name"]: made["spec"]["selectors"][0]["cel"]["expression"]
        for made in chart.all("DeviceClass")
    }


def test_device_classes_select_whole_gpus_any_partition_and_those_of_a_profile(chart) -> None:
    of_driver = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com']"
    profile = "device.attributes['gpu.example.com'].profile"
    wanted = {"mig": ["1g.10gb", {"profile": "3g.40gb"}]}
    assert selectors(chart(driverName="gpu.example.com", deviceClasses=wanted)) == {
        "gpu.example.com": f"{of_driver}.type == 'gpu'",
        "mig.example.com": f"{of_driver}.type == 'mig'",
        "mig-1g.10gb.example.com": f"{of_driver}.type == 'mig' && {profile} == '1g.10gb'",
        "mig-3g.40gb.example.com": f"{of_driver}.type == 'mig' && {profile} == '3g.40gb'",
    }
    assert chart(deviceClasses={"create": False, **wanted}).all("DeviceClass") == []


def test_variants_of_a_profile_have_device_classes_of_different_names(chart) -> None:
    made = chart(deviceClasses={"mig": ["1g.24gb+me", "1g.24gb-me", "1g.24gb+me.all"]})
    assert list(selectors(made))[2:] == [
        "mig-1g.24gb-me.tessera.dev",
        "mig-1g.24gb-nome.tessera.dev",
        "mig-1g.24gb-me.all.tessera.dev",
    ]


def test_an_extended_resource_is_named_where_it_is_wanted_and_nowhere_else(chart) -> None:
    named = {
        made["metadata"]["name"]: made["spec"].get("extendedResourceName")
        for made in chart(EVERYTHING).all("DeviceClass")
    }
    assert named == {
        "gpu.example.com": "example.com/gpu",
        "mig.example.com": None,
        "mig-1g.10gb-me.example.com": None,
        "mig-3g.40gb.example.com": "example.com/mig-3g.40gb",
    }


def _pod_labels(daemon_set: Object) -> dict[str, str]:
    labels: dict[str, str] = daemon_set["spec"]["template"]["metadata"]["labels"]
    return labels
