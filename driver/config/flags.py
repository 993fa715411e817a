"""Command-line flags, made from the fields of a settings model.

Why it exists: a flag's name, help and default never differ from the setting's. argparse only
collects texts; checking is the model's, so a wrong flag and a wrong line in the file read alike.
"""

from __future__ import annotations

import argparse
import difflib
from typing import NoReturn

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from driver.config.load import FILE_VARIABLE, flag, variable
from driver.core.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of ending the process, and takes no abbreviated flags."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"allow_abbrev": False, **options})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        head, _, given = message.partition("unrecognized arguments: ")
        if head or not given:
            raise ConfigError(f"{self.prog}: {message}")
        known = [o for action in self._actions for o in action.option_strings]
        first = given.split()[0].partition("=")[0]
        near = difflib.get_close_matches(first, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"`{self.prog} --help` lists all flags"
        raise ConfigError(f"{self.prog}: {given} is not a flag; {hint}")


def add_flags(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """`--config`, and one flag for each field. A flag that is not given leaves no trace."""
    parser.add_argument(
        "--config", metavar="FILE", help=f"YAML file with settings [{FILE_VARIABLE}]"
    )
    for key, field in model.model_fields.items():
        parser.add_argument(
            flag(key),
            dest=key,
            metavar="VALUE",
            default=argparse.SUPPRESS,
            help=_help(key, field),
        )


def given(namespace: argparse.Namespace, model: type[BaseModel]) -> dict[str, str]:
    """The flags that were on the command line, by key, as texts."""
    values = vars(namespace)
    return {key: values[key] for key in model.model_fields if key in values}


def _help(key: str, field: FieldInfo) -> str:
    text = field.description or ""
    if (
        field.default_factory is None
        and field.default not in {None, "", ()}
        and not field.is_required()
    ):
        text += f" (default: {_plain(field.default)})"
    return f"{text} [{variable(key)}]".replace("%", "%%")


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
