"""The commands of simctl that change or ask a machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

from hack.simnvml.assemble import FieldValue
from hack.simnvml.gpu import Gpu, Instance
from hack.simnvml.kit import Machine

Opener = Callable[[list[str]], int]
Arguments = argparse.Namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`declare` names its arguments, `run` does it."""

    name: str
    help: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Machine, Arguments], None]


def show(machine: Machine, *, as_json: bool) -> int:
    """Prints every GPU and what is cut out of it."""
    snapshot = machine.snapshot()
    if as_json:
        gpus = [
            _gpu_summary(gpu)
            | {"instances": [dataclasses.asdict(i) for i in snapshot.get(gpu.slot, ())]}
            for gpu in machine.gpus
        ]
        driver = {name: machine.get(name) for name in ("driver", "boot_id", "driver_loaded")}
        print(json.dumps(driver | {"gpus": gpus}, indent=2))
        return 0
    for gpu in machine.gpus:
        state = "lost" if gpu.get("lost") else f"MIG {'on' if gpu.get('mig_current') else 'off'}"
        print(f"{gpu.slot:2}  {gpu.uuid}  {gpu.pci}  {gpu.get('name')}  {state}")
        for instance in snapshot.get(gpu.slot, ()):
            print(f"      {_line(instance)}")
    return 0


def _gpu_summary(gpu: Gpu) -> dict[str, object]:
    names = ("name", "lost", "mig_current", "mig_pending", "temp", "recovery_action", "minor")
    return {"slot": gpu.slot, "uuid": gpu.uuid, "pci": gpu.pci, **{n: gpu.get(n) for n in names}}


def _line(i: Instance) -> str:
    place = f"GI {i.gi:2} {i.profile} at {i.start}:{i.size}"
    return f"{place}  no compute instance" if i.ci is None else f"{place}  CI {i.ci}  {i.uuid}"


def _gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gpu", type=int)


def _instance(parser: argparse.ArgumentParser) -> None:
    _gpu(parser)
    parser.add_argument("--gi", type=int)
    parser.add_argument("--ci", type=int)


def _nothing(_: argparse.ArgumentParser) -> None:
    pass


def _xid(parser: argparse.ArgumentParser) -> None:
    _gpu(parser)
    parser.add_argument("code", type=int)
    parser.add_argument("--gi", type=int)
    parser.add_argument("--ci", type=int)


def _lose(parser: argparse.ArgumentParser) -> None:
    _gpu(parser)
    parser.add_argument("--off-bus", action="store_true")


def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gpu", type=int, help="-1: the machine")
    parser.add_argument("assignment", nargs="+", help="field=value; value none hides the field")


def _apply(machine: Machine, options: Arguments) -> None:
    target = machine if options.gpu < 0 else machine.gpu(options.gpu)
    fields: dict[str, FieldValue] = {}
    for assignment in options.assignment:
        field, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"{assignment!r} is not field=value")
        fields[field] = _value(text, is_text=isinstance(target.get(field), str))
    target.set(**fields)


def _value(text: str, *, is_text: bool) -> FieldValue:
    if text == "none":
        return None
    if is_text:
        return text
    numbers = [int(part, 0) for part in text.split(",")]
    return numbers if len(numbers) > 1 else numbers[0]


def _rule(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="what", required=True)
    add = actions.add_parser("add")
    add.add_argument("glob", help="NVML symbols, such as nvmlGpuInstance*")
    add.add_argument("--ret", type=int, default=0, help="NVML return code; -1 crashes the caller")
    add.add_argument("--gpu", type=int)
    add.add_argument("--times", type=int)
    add.add_argument("--delay-ms", type=int, default=0)
    add.add_argument("--probability", type=float, default=1.0)
    add.add_argument("--after", type=int, default=0)
    actions.add_parser("list")
    clear = actions.add_parser("clear")
    clear.add_argument("id", type=int, nargs="?", default=0, help="all when left out")


def _do_rule(machine: Machine, options: Arguments) -> None:
    match options.what:
        case "add":
            names = ("ret", "gpu", "times", "delay_ms", "probability", "after")
            settings = {name: getattr(options, name) for name in names}
            print(machine.rule(options.glob, **settings).id)
        case "list":
            for rule in machine.rules():
                print(json.dumps(rule))
        case "clear":
            machine.clear_rules(options.id)


def _calls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("glob", nargs="?", default="*")
    parser.add_argument("--last", action="store_true", help="the last calls, one a line")


def _do_calls(machine: Machine, options: Arguments) -> None:
    if not options.last:
        print(machine.calls(options.glob))
        return
    for call in machine.last_calls():
        print(f"{call.at:.6f} pid {call.pid} gpu {call.gpu} {call.symbol} -> {call.ret}")


def _busy(parser: argparse.ArgumentParser) -> None:
    _instance(parser)
    parser.add_argument("--off", action="store_true")


COMMANDS = (
    Command(
        name="xid",
        help="raise an Xid",
        declare=_xid,
        run=lambda m, o: m.gpu(o.gpu).xid(o.code, gi=o.gi, ci=o.ci),
    ),
    Command(
        name="lose",
        help="a GPU that answers GPU_IS_LOST",
        declare=_lose,
        run=lambda m, o: m.gpu(o.gpu).lose(off_bus=o.off_bus),
    ),
    Command(name="reset", help="reset a GPU", declare=_gpu, run=lambda m, o: m.gpu(o.gpu).reset()),
    Command(name="set", help="set plain fields", declare=_set, run=_apply),
    Command(
        name="busy",
        help="mark as in use",
        declare=_busy,
        run=lambda m, o: m.gpu(o.gpu).busy(not o.off, gi=o.gi, ci=o.ci),
    ),
    Command(name="rule", help="fault rules", declare=_rule, run=_do_rule),
    Command(name="calls", help="count or list NVML calls", declare=_calls, run=_do_calls),
    Command(
        name="unload",
        help="unload the kernel driver",
        declare=_nothing,
        run=lambda m, _: m.driver_loaded(False),
    ),
    Command(
        name="load",
        help="load the kernel driver",
        declare=_nothing,
        run=lambda m, _: m.driver_loaded(True),
    ),
    Command(name="reboot", help="reboot the node", declare=_nothing, run=lambda m, _: m.reboot()),
    Command(
        name="unplug", help="take a GPU out", declare=_gpu, run=lambda m, o: m.gpu(o.gpu).unplug()
    ),
    Command(name="plug", help="put a GPU back", declare=_gpu, run=lambda m, o: m.gpu(o.gpu).plug()),
)


def run_script(text: str, run: Opener) -> int:
    """Runs each line `SECONDS COMMAND ...` that long after the start; # begins a comment."""
    steps = [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]
    timed = sorted(((float(words[0]), words[1:]) for words in steps), key=lambda step: step[0])
    start = time.monotonic()
    for at, words in timed:
        time.sleep(max(0.0, start + at - time.monotonic()))
        if result := run(words):
            return result
    return 0
