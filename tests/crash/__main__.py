"""Kills the plugin at every step of every operation: `python -m tests.crash [SCENE ...]`.

Prints, for each operation, its steps, the kill points (before, inside and after a step) and the
runs; ends with 1 where a run left something wrong, and says how to see that one again.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import traceback

from tests.crash.runs import Bench, Operation, faults
from tests.crash.scenes import SCENES

_SHOWN = 5
"""Failures that are printed in full."""


class Tally:
    def __init__(self) -> None:
        self.points = 0
        self.runs = 0
        self.failed: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("scenes", nargs="*", choices=[*SCENES, []], default=[])
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--full", action="store_true", help="every fault with everything after it")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # failing is the subject, here
    total = Tally()
    began = time.monotonic()
    for name in given.scenes or SCENES:
        bench = Bench(SCENES[name])
        try:
            play(bench, total, given)
        finally:
            bench.close()
    print(
        f"{total.points} kill points, {total.runs} runs, {len(total.failed)} failed,"
        f" {time.monotonic() - began:.0f} s"
    )
    return 1 if total.failed else 0


def play(bench: Bench, total: Tally, given: argparse.Namespace) -> None:
    todo = list(bench.operations())
    # Starting over the leftovers of a kill is itself killed at every step.
    for operation in todo:
        if operation.name in {"prepare", "unprepare"}:
            steps = bench.count(operation)
            for at in leftovers(steps):
                bench.keep(operation, at)
    gc.freeze()
    for operation in bench.operations():
        if operation.name.startswith(bench.scene.skips) and not given.full:
            continue
        before = total.runs
        steps = bench.count(operation)
        points = one(bench, operation, steps, total, given)
        print(
            f"{bench.scene.name}: {operation.name}: {len(steps)} steps, {points} kill points,"
            f" {total.runs - before} runs",
            flush=True,
        )
        total.points += points


def leftovers(steps: list[str]) -> list[int]:
    """A moment inside a write, and one right after the first change of the hardware."""
    inside = [i for i, name in enumerate(steps) if name.endswith(" chmod")][-1:]
    changed = [
        i + 1
        for i, name in enumerate(steps)
        if name.endswith(("CreateGpuInstanceWithPlacement", "ComputeInstanceDestroy"))
    ][:1]
    return [*inside, *changed]


def one(
    bench: Bench, operation: Operation, steps: list[str], total: Tally, given: argparse.Namespace
) -> int:
    points = set()
    reboots = operation.before == "beside" and not bench.scene.static
    failing = given.full or not operation.name.startswith(("start", "recover,"))
    for fault, then in faults(
        steps, ends=operation.ends, reboots=reboots, failing=failing, full=given.full
    ):
        name = f"{bench.scene.name}: {operation.name}: {fault} ({steps[fault.at]}), {then}"
        if given.only not in name:
            continue
        if fault.kills:
            points.add((fault.at, fault.kind))
        total.runs += 1
        try:
            bench.run(operation, fault, then)
        except Exception:  # noqa: BLE001 - whatever it is, the plugin was to survive the fault
            total.failed.append(name)
            if len(total.failed) <= _SHOWN:
                print(
                    f"FAILED {name}\n{traceback.format_exc()}\nagain: --only {name!r}", flush=True
                )
    return len(points)


if __name__ == "__main__":
    sys.exit(main())
