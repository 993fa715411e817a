"""Random schedules of everything that can go wrong at once: `python -m tests.crash.torture`.

In rounds: what happens to pods, GPUs and the API is drawn; one or two plugins work off the
kubelet's calls, twice, in any order, while steps fail or kill them; then the node is looked at.
The first finding is printed with its seed and with the story of its round, step by step: `--seed N
--rounds M` plays the same again, but where calls run side by side (two plugins, or threads of one)
the kernel decides who comes first.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections import Counter
from functools import partial
from random import Random
from typing import Any

from driver.core.errors import StateError
from driver.ports.kubelet import Failure
from tests.crash.forking import collected, started
from tests.crash.node import Node
from tests.crash.plugin import Plugin
from tests.crash.story import Note, StoryLog
from tests.crash.weather import WEATHERS, Dice, FlakyApi, Weather

Call = tuple[str, str]
"""`prepare`, `unprepare`, `look` or `lose`, and the claim's name."""


class Schedule:
    """The claims as kubelet and scheduler see them; draws what happens next."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.node = Node(random_uuids=bool(seed % 2))
        self.tally: Counter[str] = Counter()

    def round(self) -> None:
        random = self.random
        self.node.begin()
        for _ in range(random.randint(1, 4)):
            self._happen()
        plugins = 2 if random.random() < 0.3 else 1
        threads = random.choice((1, 1, 1, 3))
        calls = self._calls()
        shares = [calls, random.sample(calls, len(calls))][:plugins]
        weather = random.choice(WEATHERS)
        self.node.story.note(f"{plugins} plugins of {threads} threads in {weather}")
        children = [
            started(partial(self._plugin, share, weather, threads, random.getrandbits(32), who))
            for share, who in zip(shares, ("first", "second"), strict=False)
        ]
        for pod in self.node.pods.values():
            pod.asked(calls, alone=plugins == 1 and threads == 1)
        for pid, pipe in children:
            killed, lines = collected(pid, pipe)
            self.tally["plugins killed" if killed else "plugins ended"] += 1
            self.node.story.note(f"{pid} was killed" if killed else f"{pid} ended")
            self.node.told([json.loads(line) for line in lines.splitlines()])
        self.tally["calls"] += sum(len(share) for share in shares)
        self.node.examine()
        self.tally["rounds"] += 1

    def _happen(self) -> None:
        random, node = self.random, self.node
        pods = [node.pods[name] for name in sorted(node.pods)]
        what = random.choices(
            ("start", "end", "force", "reset", "reboot", "foreign", "foreign goes"),
            (10, 6, 2, 0.3, 0.3, 1, 1),
        )[0]
        self.tally[what] += 1
        match what:
            case "start":
                node.allocate(random)
            case "end" if pods:
                node.end(random.choice(pods))
            case "force" if pods:
                node.delete(random.choice(pods))
            case "reset":
                node.reset(random.choice(node.gpus))
            case "reboot":
                node.reboot()
            case "foreign":
                node.cut(random)
            case "foreign goes":
                node.uncut(random)
            case _:
                self.tally[what] -= 1

    def _calls(self) -> list[Call]:
        """What the kubelet asks for: again and again, sometimes late, in any order."""
        random = self.random
        calls: list[Call] = []
        for pod in self.node.pods.values():
            want: Call = ("unprepare" if pod.ending else "prepare", pod.name)
            calls += [want] * random.choice((0, 1, 1, 1, 2))
            if random.random() < 0.05:
                calls.append(("prepare", pod.name))
            if random.random() < 0.1:
                calls.append(("lose", pod.name))
        calls += [("look", "")] * random.choice((0, 0, 1))
        random.shuffle(calls)
        return calls

    def _plugin(
        self, calls: list[Call], weather: Weather, threads: int, seed: int, who: str, telling: int
    ) -> None:
        """In a child: the plugin, and the kubelet's calls in `threads`. Answers are told at once:
        the kubelet has heard them when we die.
        """
        random, note = Random(seed), partial(self.node.story.note, who=who)
        note(f"starts as {os.getpid()}")
        StoryLog(note).install()
        try:
            plugin = self.node.plugin(Dice(random, weather, note))
        except StateError as error:
            note(f"cannot start: {error}")
            return  # the container is started again later
        api = FlakyApi(claims=plugin.api.claims)
        api.random, api.rate = random, weather.api
        plugin.api.get = api.get  # type: ignore[method-assign]
        plugin.recovery.begin()
        parts = [calls[n::threads] for n in range(threads)]
        workers = [
            threading.Thread(target=self._work, args=(plugin, part, note, telling), name=str(n))
            for n, part in enumerate(parts[1:], start=2)
        ]
        for worker in workers:
            worker.start()
        self._work(plugin, parts[0], note, telling)
        for worker in workers:
            worker.join()

    def _work(self, plugin: Plugin, calls: list[Call], note: Note, telling: int) -> None:
        for what, name in calls:
            note(f"{what} {name}")
            if what == "look":
                plugin.recovery.look()
                continue
            if what == "lose":
                self.node.lose(plugin, name)
                continue
            obj = self.node.pods[name].obj
            said: Any
            if what == "prepare":
                answer = plugin.prepare(obj)
                said = None if isinstance(answer, Failure) else repr(answer)
            else:
                said = "" if not plugin.unprepare(obj) else None
            note(f"{what} {name}: {'done' if said is not None else 'failed'}")
            line = json.dumps({"call": what, "name": name, "said": said})
            os.write(telling, line.encode() + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=200, help="of one seed, with a fresh node")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    end = time.monotonic() + given.seconds
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(3))
    total: Counter[str] = Counter()
    while True:
        schedule = Schedule(seed)
        done = 0
        try:
            while done < given.rounds and (given.seed is not None or time.monotonic() < end):
                done += 1
                schedule.round()
            schedule.node.drain()
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            print(schedule.node.story.told())
            traceback.print_exc()
            print(f"FOUND in round {done}: --seed {seed} --rounds {done}", flush=True)
            return 1
        finally:
            schedule.node.close()
        total.update(schedule.tally)
        print(f"seed {seed}: {done} rounds without a finding", flush=True)
        if given.seed is not None or time.monotonic() >= end:
            break
        seed += 1
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
