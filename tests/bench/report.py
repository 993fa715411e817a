"""The form of every benchmark's result: machine facts, commit, named values beside their goals."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPO: Final = Path(__file__).resolve().parents[2]
OUT: Final = REPO / "build" / "bench"


AT_MOST: Final = "<="
AT_LEAST: Final = ">="


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`sense` says on which side of `goal` is good. `detail` is for the reader, not compared."""

    value: float
    goal: float
    unit: str
    detail: str = ""
    sense: str = AT_MOST

    @property
    def holds(self) -> bool:
        return self.value >= self.goal if self.sense == AT_LEAST else self.value <= self.goal


def write(target: str, results: dict[str, Result]) -> Path:
    """`build/bench/<target>.json`, and a table on standard output."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{target}.json"
    document = {
        "machine": machine(),
        "commit": commit(),
        "results": {
            name: {"value": r.value, "goal": r.goal, "unit": r.unit, "holds": r.holds}
            for name, r in results.items()
        },
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document))
    width = max(map(len, results))
    for name, r in results.items():
        verdict = "holds" if r.holds else "MISSED"
        print(
            f"{name.ljust(width)}  {r.value:8.{_digits(r)}f} {r.unit:6}  goal {r.sense} {r.goal:g}"
            f"  {verdict:6}  {r.detail}"
        )
    return path


def _digits(result: Result) -> int:
    """Shares need one digit more than times do."""
    return 2 if result.unit else 4


def machine() -> dict[str, Any]:
    memory = next(
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemT" in line
    )
    model = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_mib": int(memory) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
