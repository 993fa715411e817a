"""The flags of `tessera simulate`, as texts; `options.py` checks them.

Nothing heavy is imported here: the command line is built for every command.
"""

from __future__ import annotations

from argparse import ArgumentParser


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--board", metavar="NAME", help="board to simulate (default: H100-80)")
    parser.add_argument(
        "--geometry",
        metavar="FILE",
        help="JSON file with boards, instead of the built-in examples",
    )
    parser.add_argument("--gpus", metavar="N", default="8", help="GPUs of the node (default: 8)")
    parser.add_argument(
        "--profiles", metavar="NAMES", help="MIG profiles to publish (default: as the driver does)"
    )
    parser.add_argument(
        "--mix",
        metavar="MIX",
        help="what jobs ask for: a name, or weights as 1g.10gb=70,gpu=30 (default: uniform)",
    )
    parser.add_argument(
        "--load",
        metavar="LOADS",
        help="slots asked for / slots there are; several with commas"
        " (default: 0.5; with --plot 0.2 to 1.0)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAMES",
        action="append",
        help="policies to compare, with commas or given again (default: all)",
    )
    parser.add_argument(
        "--lag",
        metavar="N",
        default="0",
        help="allocations and ends that a published order is behind (default: 0)",
    )
    parser.add_argument("--arrivals", metavar="N", help="jobs to play (default: 5000)")
    parser.add_argument("--seed", metavar="N", default="1", help="of the jobs (default: 1)")
    parser.add_argument(
        "--stream",
        metavar="FILE",
        help="play a recording: one JSON object a line with at, profile, lasts and maybe name",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--plot", metavar="FILE.svg", help="also draw GPUs in excess over load, policy by policy"
    )
