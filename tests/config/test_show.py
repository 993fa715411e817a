import json
import subprocess
import sys

import jsonschema
import pytest
import yaml

from driver.config.flags import Parser, add_flags
from driver.config.load import load
from driver.config.settings import PluginSettings
from driver.config.show import dump, schema

CHANGED = {
    "node_name": "n1",
    "driver_root": "/drv",
    "container_library_dirs": "/a,/b",
    "http_address": "",
    "rescan_seconds": "5.5",
    "kubeconfig": "/etc/k",
    "policy": "distributed",
    "mig_profiles": "1g.10gb,1g.10gb+me",
    "min_whole_gpus": "2",
    "gpus": '[{"match": {"product": "A100", "index": 0}, "mode": "static"}]',
}


@pytest.mark.parametrize("flags", [{"node_name": "n1"}, CHANGED])
def test_what_is_printed_sets_the_same_when_it_is_given_as_the_file(tmp_path, flags):
    first = load(PluginSettings, flags=flags, environ={})
    path = tmp_path / "printed.yaml"
    path.write_text(dump(first))
    assert load(PluginSettings, flags={}, environ={}, file=path) == first


def test_the_schema_takes_what_is_printed_and_no_unknown_key():
    document = schema(PluginSettings)
    jsonschema.Draft202012Validator.check_schema(document)
    printed = yaml.safe_load(dump(load(PluginSettings, flags=CHANGED, environ={})))
    jsonschema.validate(printed, document)
    with pytest.raises(jsonschema.ValidationError, match="nodename"):
        jsonschema.validate(printed | {"nodename": "x"}, document)
    assert json.dumps(document).count("x-environment") == len(PluginSettings.model_fields)


def test_every_flag_explains_itself_and_names_its_variable(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    parser = Parser(prog="tessera plugin")
    add_flags(parser, PluginSettings)
    text = " ".join(parser.format_help().split())
    for key, field in PluginSettings.model_fields.items():
        assert f"--{key.replace('_', '-')} VALUE" in text
        assert f"[TESSERA_{key.upper()}]" in text
        assert field.description
    assert "(default: libcuda.so.1,libnvidia-ml.so.1)" in text


def test_reading_settings_loads_no_library_of_another_adapter():
    code = (
        "import sys, driver.config.flags, driver.config.show, driver.config.settings\n"
        "print({'grpc', 'kubernetes', 'pynvml', 'prometheus_client'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "set()\n"
