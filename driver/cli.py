"""The command `tessera`: reads the command line, and hands over to one use case.

Exit codes: 0, asked to end and did; 1, ended by a failure, which the last line names; 2, a setting,
flag or environment value is wrong, or a folder that is needed is not there.

What a command prints is written at its end, so that only one place meets a pipe or a disk that
takes no more.

Must not know what a use case does. Use cases are imported when they are asked for: `--help` should
not load gRPC.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace, _SubParsersAction
from collections.abc import Callable, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TextIO

from driver.config.flags import Parser, add_flags, given
from driver.config.load import load
from driver.config.settings import PluginSettings
from driver.config.show import dump
from driver.control import arguments as control_arguments
from driver.core.errors import ConfigError, TesseraError
from driver.plan import arguments as plan_arguments
from driver.simulate import arguments as simulate_arguments

OK, FAILED, WRONG = 0, 1, 2


class UnwrittenError(TesseraError):
    """What was printed is not where it should be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's exit code."""
    out = StringIO()
    try:
        chosen = _chosen(arguments)
        run: Callable[[Namespace, TextIO], int] = chosen.run
        code = run(chosen, out)
        _write(out.getvalue())
    except ConfigError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return WRONG
    except TesseraError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return FAILED
    return code


def _chosen(arguments: Sequence[str] | None) -> Namespace:
    try:
        chosen, unknown = _parser().parse_known_args(arguments)
    except SystemExit:  # argparse has printed help
        _write("")
        raise
    if unknown:
        # By the command's own parser: it knows the flag that was meant.
        chosen.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return chosen


def _write(text: str) -> None:
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        _forget_output()  # who reads has seen enough, like `head`
    except OSError as error:
        _forget_output()
        raise UnwrittenError(f"the output cannot be written: {error.strerror}") from error


def _forget_output() -> None:
    """Python would try again at its end, and tell of it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _parser() -> Parser:
    parser = Parser(prog="tessera", description="DRA driver for NVIDIA GPUs and MIG partitions")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    plugin = commands.add_parser(
        "plugin", help="run the node plugin", description="Serves the kubelet of this node."
    )
    add_flags(plugin, PluginSettings)
    plugin.add_argument(
        "--print-config", action="store_true", help="print the settings in force and end"
    )
    plugin.set_defaults(run=_plugin, parser=plugin)
    plan = commands.add_parser(
        "plan",
        help="show what still fits, and whose end would make room",
        description="Reads a cluster, or what kubectl printed; changes nothing.",
    )
    plan_arguments.add_arguments(plan)
    plan.set_defaults(run=_plan, parser=plan)
    simulate = commands.add_parser(
        "simulate",
        help="play policies on a stream of jobs",
        description="Needs no GPU and no cluster.",
    )
    simulate_arguments.add_arguments(simulate)
    simulate.set_defaults(run=_simulate, parser=simulate)
    _add_control(commands)
    return parser


def _add_control(commands: _SubParsersAction[Parser]) -> None:
    """What is asked of the plugin that runs on this node."""
    for name, text, description, add in (
        (
            "status",
            "show the GPUs of this node, what is withheld and why, and who has what",
            "Asks the plugin of this node.",
            control_arguments.add_status,
        ),
        (
            "explain",
            "say why a device or GPU is what it is, what clears it and who must act",
            "Asks the plugin of this node.",
            control_arguments.add_explain,
        ),
        (
            "ack",
            "take responsibility for a fault that only an operator can clear",
            "The GPU comes back once a probe has passed as well.",
            control_arguments.add_ack,
        ),
        (
            "release",
            "let go of all GPUs for a while, so that others can reset or cut them",
            "Nothing is prepared meanwhile; the kernel log is still read.",
            control_arguments.add_release,
        ),
        (
            "reset-done",
            "say that a GPU was reset, where nothing else shows it",
            "The GPU comes back once a probe has passed as well.",
            control_arguments.add_reset_done,
        ),
    ):
        command = commands.add_parser(name, help=text, description=description)
        add(command)
        command.set_defaults(run=partial(_control, name), parser=command)


def _plugin(chosen: Namespace, out: TextIO) -> int:
    settings = load(
        PluginSettings,
        flags=given(chosen, PluginSettings),
        environ=os.environ,
        file=Path(chosen.config) if chosen.config else None,
    )
    if chosen.print_config:
        out.write(dump(settings))
        return OK
    from driver.plugin.app import run  # noqa: PLC0415 - see the module's docstring

    return run(settings)


def _control(name: str, chosen: Namespace, out: TextIO) -> int:
    from driver.control import app  # noqa: PLC0415 - see the module's docstring

    runs = {
        "status": app.show_status,
        "explain": app.explain,
        "ack": app.acknowledge,
        "release": app.release,
        "reset-done": app.reset_done,
    }
    return runs[name](chosen, out, os.environ)


def _plan(chosen: Namespace, out: TextIO) -> int:
    from driver.plan.app import run  # noqa: PLC0415 - see the module's docstring

    return run(chosen, sys.stdin, out)


def _simulate(chosen: Namespace, out: TextIO) -> int:
    from driver.simulate.app import run  # noqa: PLC0415 - see the module's docstring

    return run(chosen, out)
