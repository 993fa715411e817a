"""The YAML on the pages: accepted by the API, by the chart and by the settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from driver.config.load import load
from driver.config.settings import PluginSettings
from tests.data.mig_boards import H100
from tests.docs.tables import OPERATIONS, REPO

README = REPO / "README.md"
VERSIONS = ("1.34.0", "1.35.0", "1.36.0", "1.37.0")
VALUES = yaml.safe_load((REPO / "charts" / "tessera" / "values.yaml").read_text())


def documents(page: Path) -> list[dict[str, Any]]:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def requests(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Every request of a template that names a class, alternatives one by one."""
    found = template["spec"]["spec"]["devices"]["requests"]
    return [one for each in found for one in each.get("firstAvailable", [each.get("exactly")])]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_of_the_readme_has_the_schema_of_every_kubernetes_version(version) -> None:
    found = documents(README)
    assert len(found) >= 8
    for each in found:
        short = version.rpartition(".")[0]
        assert kubernetes_validate.validate(each, version, strict=True) == short, each["kind"]


def test_the_examples_show_a_partition_two_on_one_gpu_a_list_and_a_selector() -> None:
    templates = [each for each in documents(README) if each["kind"] == "ResourceClaimTemplate"]
    text = yaml.safe_dump(templates, width=1000)
    for part in (
        "mig-1g.10gb",
        "matchAttribute: gpu.tessera.dev/parentUUID",
        "firstAvailable",
        ".memory.compareTo(quantity('20Gi')) >= 0",
        ".memory.compareTo(quantity('45Gi')) <= 0",
    ):
        assert part in text


def test_the_classes_and_claims_that_examples_name_are_there() -> None:
    found = documents(README)
    templates = {
        each["metadata"]["name"]: each for each in found if each["kind"] == "ResourceClaimTemplate"
    }
    classes = {"gpu.tessera.dev", "mig.tessera.dev"}
    classes |= {f"mig-{p.name}.tessera.dev" for p in H100.base}
    for template in templates.values():
        assert {one["deviceClassName"] for one in requests(template)} <= classes
    for pod in (each for each in found if each["kind"] == "Pod"):
        claims = {c["name"]: c["resourceClaimTemplateName"] for c in pod["spec"]["resourceClaims"]}
        assert set(claims.values()) <= templates.keys()
        for container in pod["spec"]["containers"]:
            for used in container["resources"]["claims"]:
                devices = templates[claims[used["name"]]]["spec"]["spec"]["devices"]
                names = {each["name"] for each in devices["requests"]}
                assert used.get("request", min(names)) in names


def test_the_values_in_examples_of_the_page_for_operators_are_values_of_the_chart() -> None:
    examples = [each for each in documents(OPERATIONS) if "kind" not in each]
    assert [list(each) for each in examples] == [["plugin"], ["deviceClasses"]]
    for each in examples:
        for key, below in each.items():
            assert below.keys() <= VALUES[key].keys()


def test_the_rules_for_gpus_in_the_example_are_ones_that_the_plugin_takes(tmp_path) -> None:
    (example,) = [each["plugin"] for each in documents(OPERATIONS) if "plugin" in each]
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump({"node_name": "n1", **example}))
    rules = load(PluginSettings, flags={}, environ={}, file=path).rules
    assert [str(rule) for rule in rules] == [
        "{product: A100} -> dynamic",
        "{uuid: GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c} -> excluded",
        "{pci: 0000:3b:00.0} -> full",
    ]


def test_the_scheduler_configuration_keeps_the_scheduler_that_pods_use_by_default() -> None:
    (found,) = [e for e in documents(OPERATIONS) if e.get("kind") == "KubeSchedulerConfiguration"]
    assert [each["schedulerName"] for each in found["profiles"]] == ["default-scheduler", "packing"]
    strategy = found["profiles"][1]["pluginConfig"][0]["args"]["scoringStrategy"]
    assert strategy["type"] == "MostAllocated"
