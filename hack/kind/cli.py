"""The command line: `python3 -m hack.kind COMMAND`. Exit codes: 0 done, 1 failed, 2 wrong usage.

Why it exists: everything about the test cluster is one command away, from a shell, from make and
from CI, before any virtual environment exists.

Must not know: how anything is done.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.kind import binaries, cluster, debian, lifecycle
from hack.kind.paths import REPO, State
from hack.kind.shell import Failure, logged, say, step

MAX_WORKERS = 9


def workers(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_WORKERS}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="hack.kind", description="A kind cluster for tests.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    up = command("up", "start the cluster; does nothing if it is up as wanted")
    up.add_argument("--workers", type=workers, default=2, help="GPU nodes (default 2)")
    up.add_argument(
        "--preset",
        default="h100x2,h100x4",
        help="simulated GPUs of each worker, comma-separated (default h100x2,h100x4)",
    )
    down = command("down", "stop the cluster and the engine; leaves nothing running")
    down.add_argument("--purge", action="store_true", help="also forget the engine's images")
    command("status", "what is up").add_argument("--json", action="store_true")
    load = command("load", "copy images from the engine to the nodes")
    load.add_argument("image", nargs="+", metavar="IMAGE")
    build = command("build-image", "build a Dockerfile on the local base image, in the engine")
    build.add_argument("tag", metavar="TAG")
    build.add_argument("--context", type=Path, default=REPO, help="folder (default: repository)")
    build.add_argument("--file", type=Path, help="Dockerfile (default: CONTEXT/Dockerfile)")
    build.add_argument("--load", action="store_true", help="also copy it to the nodes")
    command("base-image", "print the name of the base image; builds it if need be")
    shell = command("node-shell", "run a command, or a shell, in a node")
    shell.add_argument("node", metavar="NODE")
    shell.add_argument("argv", nargs="*", metavar="-- COMMAND")
    command("reboot", "restart a node and reset its GPUs").add_argument("node", metavar="NODE")
    execute = command("exec", "run a command where kubectl, helm and docker reach the cluster")
    execute.add_argument("argv", nargs="+", metavar="-- COMMAND")
    command("env", "print the variables that `exec` sets, for a shell")
    audit = command("audit", "print the API server's audit log, one JSON event a line")
    audit.add_argument("--path", action="store_true", help="print where it is instead")
    programs = command("binaries", "build programs (default: all) without starting anything")
    programs.add_argument("program", nargs="*", metavar="PROGRAM")
    programs.add_argument("--path", action="store_true", help="print the folder with them")
    command("clean", "drop cache entries that today's sources do not use")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        return _run(given, State.default())
    except Failure as error:
        say(f"error: {error}")
        return 2 if str(error).startswith("argument ") else 1
    except KeyboardInterrupt:
        return 130


def _run(given: argparse.Namespace, state: State) -> int:
    match given.command:
        case "up":
            lifecycle.up(state, workers=given.workers, preset=given.preset)
        case "down":
            lifecycle.down(state, purge=given.purge)
        case "status":
            return _status(state, as_json=given.json)
        case "binaries":
            built = binaries.ensure(*given.program)
            if given.path:
                print(built.path)
        case "base-image":
            print(debian.base_image()[0])
        case "clean":
            for path in lifecycle.clean(state):
                say(f"removed {path}")
        case "audit":
            _audit(state, only_path=given.path)
        case _:
            return _with_cluster(given, state)
    return 0


def _with_cluster(given: argparse.Namespace, state: State) -> int:
    running = lifecycle.require(state)
    match given.command:
        case "exec":
            _replace(running.argv(*given.argv), running)
        case "env":
            _print_env(running)
        case "node-shell":
            running.require_node(given.node)
            terminal = ["-it"] if sys.stdin.isatty() else ["-i"]
            argv = ["docker", "exec", *terminal, given.node, *(given.argv or ["bash"])]
            _replace(argv, running)
        case "reboot":
            with lifecycle.locked(state):
                cluster.reboot(running, given.node)
        case "load":
            cluster.load(running, given.image)
        case "build-image":
            _build_image(running, given)
    return 0


def _replace(argv: list[str], running: cluster.Cluster) -> None:
    """Become the command: its exit code, signals and terminal are the caller's."""
    try:
        os.execvpe(argv[0], argv, running.env())
    except FileNotFoundError as error:
        raise Failure(f"{argv[0]} is not installed; see hack/kind/apt.txt") from error


def _print_env(running: cluster.Cluster) -> None:
    """`enter` is a command prefix, since a shell cannot move itself into a namespace."""
    changed = {k: v for k, v in running.env().items() if os.environ.get(k) != v}
    for name, value in sorted(changed.items()):
        print(f"export {name}={shlex.quote(value)}")
    print(f"export TESSERA_KIND_ENTER={shlex.quote(shlex.join(running.engine.enter))}")


def _build_image(running: cluster.Cluster, given: argparse.Namespace) -> None:
    argv = ["docker", "build", "-t", given.tag]
    if given.file:
        argv += ["-f", str(given.file)]
    if running.engine.own:
        base, archive = debian.base_image()
        running.engine.load_archive(base, archive)
        argv += ["--build-arg", f"BASE={base}", "--network", "none"]
    with step(f"build of {given.tag}"):
        log = running.state.logs / "docker-build.log"
        log.unlink(missing_ok=True)
        logged([*argv, str(given.context)], log, env=running.env())
    if given.load:
        cluster.load(running, [given.tag])


def _audit(state: State, *, only_path: bool) -> None:
    path = state.audit / "audit.log"
    if only_path:
        print(path)
    elif path.exists():
        with path.open() as stream:
            sys.stdout.writelines(stream)
    else:
        raise Failure(f"no audit log at {path}; is the cluster up?")


def _status(state: State, *, as_json: bool) -> int:
    found = lifecycle.status(state)
    if as_json:
        print(json.dumps(found, indent=1))
    elif not found["up"]:
        print("down")
    else:
        print(f"up: Kubernetes {found['kubernetes']}, kubeconfig {found['kubeconfig']}")
        for node in found["nodes"]:
            ready = "Ready" if node["ready"] else "NotReady"
            print(f"  {node['name']:24} {ready:9} {node['address']:14} pods {node['pods']}")
    return 0 if found["up"] else 1
