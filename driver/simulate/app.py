"""One run of `tessera simulate`: streams, policies, and the table, document and picture of them."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from driver.core.errors import ConfigError
from driver.core.simulation.compare import Setup, outcome
from driver.core.simulation.jobs import Job, poisson, rate, sizes
from driver.simulate.options import Options, read
from driver.simulate.plot import draw
from driver.simulate.recording import read_stream
from driver.simulate.rows import Row, document, rows, table, title

_WARMUP: Final = 20
"""One in so many jobs fills the node first; a recording counts from its first job."""
_SAMPLES: Final = 100


def run(chosen: Namespace, out: TextIO) -> int:
    options = read(chosen)
    found: list[Row] = []
    if options.stream is not None:
        jobs = read_stream(options.stream, sizes(options.offer))
        found += _play(options, _load(options, jobs), jobs, warmup=0)
    else:
        for load in options.loads:
            found += _play(options, load, _jobs(options, load), warmup=options.arrivals // _WARMUP)
    if options.plot is not None:
        _write(options.plot, draw(title(options, found), found))
    out.write(document(options, found) if options.json else table(options, found))
    return 0


def _jobs(options: Options, load: float) -> list[Job]:
    per_duration = rate(options.offer, options.gpus, options.mix, load)
    source = random.Random(options.seed)  # noqa: S311 - a simulation, nothing secret
    return list(poisson(options.mix, per_duration, options.arrivals, source))


def _play(options: Options, load: float, jobs: Sequence[Job], *, warmup: int) -> list[Row]:
    setup = Setup(offer=options.offer, gpus=options.gpus, lag=options.lag)
    samples = max(1, (len(jobs) - warmup) // _SAMPLES)
    found = {}
    for policy in options.policies:
        source = random.Random(options.seed)  # noqa: S311 - a simulation, nothing secret
        found[policy] = outcome(jobs, setup, policy, source, warmup=warmup, samples=samples)
    return rows(load, found)


def _load(options: Options, jobs: Sequence[Job]) -> float:
    """Of a recording: slots asked for over its time, of those there are."""
    of, span = sizes(options.offer), jobs[-1].at - jobs[0].at
    if not span:
        raise ConfigError(f"--stream: all jobs of {options.stream} come at one time")
    asked = sum(of[job.kind].slots * job.lasts for job in jobs)
    return asked / (span * options.gpus * options.offer.geometry.slots)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plot: {path} cannot be written: {error}") from error
