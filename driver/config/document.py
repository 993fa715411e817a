"""A YAML file as a mapping with text keys.

Why not `yaml.safe_load` alone: it takes the last of two equal keys without a word, and the PCI
address `0000:01:00.0` for the number 60.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from driver.core.errors import ConfigError

_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """The safe loader, which refuses a key that is there already."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is there twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        mapping: dict[object, object] = super().construct_mapping(node, deep)
        return mapping

    def construct_number(self, node: yaml.ScalarNode) -> object:
        """YAML has no numbers of base 60 any more; what looks like one is an address."""
        if ":" in node.value:
            return self.construct_yaml_str(node)
        integer = node.tag == _INT
        return self.construct_yaml_int(node) if integer else self.construct_yaml_float(node)


for _tag in (_INT, _FLOAT):
    _Loader.add_constructor(_tag, _Loader.construct_number)


def read_mapping(path: Path) -> dict[str, object]:
    """Empty for an empty file. ConfigError names the file, and the line where there is one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"cannot read the configuration file {path}: {reason}") from error
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_line(error)}: {_problem(error)}") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError(f"{path}: must be a mapping of settings, `key: value` on each line")
    return document


def _line(error: yaml.YAMLError) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return f", line {mark.line + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
    return f"not valid YAML: {problem or error}"
