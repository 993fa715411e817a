"""simctl: the kit as a command, for demos, pods and people.

    python -m hack.simnvml --path DIR create --preset dgx-h100 --root DIR/root --nodes
    python -m hack.simnvml --path DIR xid 2 48 --gi 1

Must not know: more than the kit offers; every command is one call of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from hack.simnvml.commands import COMMANDS, Opener, run_script, show
from hack.simnvml.driverroot import render
from hack.simnvml.kit import Machine
from hack.simnvml.presets import PRESETS

Action = Callable[[argparse.Namespace], int]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    action: Action = options.action
    try:
        return action(options)
    except (OSError, RuntimeError, ValueError, AttributeError) as error:
        print(f"simctl: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simctl", description="Drive a simulated GPU node.")
    default = os.environ.get("SIMNVML_STATE") or "/run/simnvml"
    parser.add_argument("--path", type=Path, default=Path(default), help="state directory")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    create = commands.add_parser("create", help="a fresh machine")
    create.add_argument("--preset", default="dgx-h100", help=", ".join(PRESETS))
    create.add_argument("--boards", nargs="+", help="board keys, in place of a preset")
    create.add_argument("--seed", default="node", help="one per node: GPU identities follow it")
    create.add_argument("--driver", help="driver version, such as 580.95.05")
    create.add_argument("--root", type=Path, help="also render a driver root there")
    _root_options(create)
    create.set_defaults(action=_create)

    again = commands.add_parser("render", help="bring a driver root up to date")
    again.add_argument("root", type=Path)
    _root_options(again)
    again.set_defaults(action=_render)

    script = commands.add_parser("serve-script", help="run a timed scenario")
    script.add_argument("file", type=Path, help="lines of: SECONDS COMMAND ARGUMENTS")
    script.set_defaults(action=_serve_script)

    shown = commands.add_parser("show", help="GPUs and instances")
    shown.add_argument("--json", action="store_true")
    shown.set_defaults(action=lambda o: show(Machine.open(o.path), as_json=o.json))

    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.help)
        command.declare(sub)
        sub.set_defaults(action=_on_machine(command.run))
    return parser


def _root_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", action="store_true", help="real device nodes; needs root")
    parser.add_argument(
        "--live", action="store_true", help="capability files of existing instances only"
    )


def _on_machine(run: Callable[[Machine, argparse.Namespace], None]) -> Action:
    def action(options: argparse.Namespace) -> int:
        run(Machine.open(options.path), options)
        return 0

    return action


def _create(options: argparse.Namespace) -> int:
    machine = Machine.create(
        options.path, options.boards or options.preset, seed=options.seed, driver=options.driver
    )
    if options.root:
        render(machine, options.root, nodes=options.nodes, ahead=not options.live)
    return show(machine, as_json=False)


def _render(options: argparse.Namespace) -> int:
    render(Machine.open(options.path), options.root, nodes=options.nodes, ahead=not options.live)
    return 0


def _serve_script(options: argparse.Namespace) -> int:
    opener: Opener = lambda words: main(["--path", str(options.path), *words])  # noqa: E731
    return run_script(options.file.read_text(), opener)


if __name__ == "__main__":
    sys.exit(main())
