"""The rules for GPUs, in the file and as JSON, and the other settings that concern MIG."""

import json

import pytest

from driver.config.document import read_mapping
from driver.config.gpus import pci_address
from driver.config.load import load
from driver.config.settings import PluginSettings
from driver.core.boards import Binding
from driver.core.errors import ConfigError
from driver.core.ids import GpuUuid
from driver.core.modes import Mode, Rule
from driver.core.packing import Policy
from driver.core.snapshot import PciAddress

UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
RULES = [
    {"match": {"uuid": UUID}, "mode": "excluded"},
    {"match": {"pci": "00000000:3B:00.0"}, "mode": "full"},
    {"match": {"product": "A100 40GB", "index": 3}, "mode": "static"},
]
READ = (
    Rule(mode=Mode.EXCLUDED, uuid=GpuUuid(UUID)),
    Rule(mode=Mode.FULL, pci=PciAddress(domain=0, bus=0x3B, device=0)),
    Rule(mode=Mode.STATIC, product="A100 40GB", index=3),
)
FILE = f"""
node_name: n1
gpus:
  - match: {{uuid: {UUID}}}
    mode: excluded
  - match: {{pci: "00000000:3B:00.0"}}
    mode: full
  - match: {{product: A100 40GB, index: 3}}
    mode: static
"""


def settings(**flags: str) -> PluginSettings:
    return load(PluginSettings, flags={"node_name": "n1", **flags}, environ={})


def test_by_default_the_hardware_decides_and_everything_is_packed_and_dynamic():
    found = settings()
    assert (found.rules, found.profiles, found.min_whole_gpus) == ((), None, 0)
    assert (found.policy, found.binding) == (Policy.PACKED, Binding.SCHEDULER)
    assert (found.rerank, found.partition_attributes) == ("dynamic", "lean")


def test_rules_read_alike_in_the_file_in_a_variable_and_in_a_flag(tmp_path):
    text = json.dumps(RULES)
    path = tmp_path / "tessera.yaml"
    path.write_text(FILE)
    assert load(PluginSettings, flags={}, environ={}, file=path).rules == READ
    assert load(PluginSettings, flags={"node_name": "n"}, environ={"TESSERA_GPUS": text}).rules == (
        settings(gpus=text).rules
    )
    assert settings(gpus=text).rules == READ
    assert settings(gpus=" ").rules == ()


@pytest.mark.parametrize("address", ["0000:01:00.0", "3b:00.0", "10:20:30", "01:00.0"])
def test_an_address_in_the_file_is_a_text_also_where_yaml_once_knew_it_as_a_number(
    tmp_path, address
):
    path = tmp_path / "tessera.yaml"
    path.write_text(f"min_whole_gpus: 10\nrescan_seconds: 1.5\ngpus: {address}\n")
    assert read_mapping(path) == {
        "min_whole_gpus": 10,
        "rescan_seconds": 1.5,
        "gpus": address,
    }


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"mode": "full"}, "--gpus[0].match is missing"),
        ({"match": {"index": 0}}, "--gpus[0].mode is missing"),
        ({"match": {}, "mode": "full"}, "at least one of uuid, pci, product, index"),
        ({"match": {"uuid": None}, "mode": "full"}, "at least one of uuid, pci, product, index"),
        ({"match": {"name": "x"}, "mode": "full"}, "--gpus[0].match.name is not a setting"),
        ({"match": {"index": 0}, "mode": "full", "why": ""}, "--gpus[0].why is not a setting"),
        (
            {"match": {"index": 0}, "mode": "shared"},
            "--gpus[0].mode: 'shared' is wrong: Input should be 'dynamic', 'static', 'full' or",
        ),
        ({"match": {"index": -1}, "mode": "full"}, "--gpus[0].match.index: -1 is wrong"),
        ({"match": {"index": "0"}, "mode": "full"}, "--gpus[0].match.index: '0' is wrong"),
        ({"match": {"uuid": "MIG-1"}, "mode": "full"}, "--gpus[0].match.uuid: 'MIG-1' is wrong"),
        ({"match": {"product": "-"}, "mode": "full"}, "one or more words of the product's name"),
        (
            {"match": {"pci": "3b:00"}, "mode": "full"},
            "--gpus[0].match.pci: '3b:00' is wrong: allowed: a PCI address like 0000:3b:00.0",
        ),
    ],
)
def test_a_wrong_rule_is_told_with_its_place(rule, told):
    with pytest.raises(ConfigError) as caught:
        settings(gpus=json.dumps([rule]))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[{", "a JSON list like"),
        ("[{", "at character 3"),
        ('[{"mode": "full", "mode": "static"}]', "key 'mode' is there twice"),
        ('{"match": {"index": 0}, "mode": "full"}', "allowed: a list of rules"),
    ],
)
def test_a_text_that_is_no_list_of_rules_is_told_with_the_flag(text, told):
    with pytest.raises(ConfigError) as caught:
        settings(gpus=text)
    assert str(caught.value).startswith("--gpus: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00000001:AB:1f.7", "0001:ab:1f.7"),
        ("3b:00.0", "0000:3b:00.0"),
    ],
)
def test_an_address_is_read_as_the_kernel_and_nvidia_smi_write_it(text, address):
    assert str(pci_address(text)) == address


@pytest.mark.parametrize(
    ("text", "profiles"),
    [
        ("default", None),
        ("1g.10gb", ("1g.10gb",)),
        ("1g.24gb+gfx, 1g.24gb-me,2g.48gb+me.all", ("1g.24gb+gfx", "1g.24gb-me", "2g.48gb+me.all")),
    ],
)
def test_profiles_are_the_default_ones_or_those_that_are_listed(text, profiles):
    assert settings(mig_profiles=text).profiles == profiles


@pytest.mark.parametrize("text", ["1g", "1g.10GB", "1g10gb", "mig-1g.10gb", "1c.1g.10gb"])
def test_a_name_that_no_profile_can_have_is_refused_with_its_place(text):
    with pytest.raises(
        ConfigError, match=r"--mig-profiles\[0\]: .* is wrong: allowed: default, or"
    ):
        settings(mig_profiles=text)
