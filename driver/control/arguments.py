"""The flags of what is asked of a plugin: `tessera status`, `explain`, `ack`, `release` and
`reset-done`. Nothing heavy is imported here.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Final

LONGEST_WINDOW: Final = 3600


def add_status(parser: ArgumentParser) -> None:
    _add_place(parser)
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")


def add_explain(parser: ArgumentParser) -> None:
    parser.add_argument(
        "device",
        metavar="DEVICE",
        help="a device's name, the UUID of a GPU (GPU-...), or of a partition in use (MIG-...)",
    )
    _add_place(parser)


def add_ack(parser: ArgumentParser) -> None:
    parser.add_argument("--gpu", metavar="UUID", required=True, help="which GPU")
    parser.add_argument(
        "--name", required=True, help="of the fault, as `tessera explain` shows it: xid-95"
    )
    parser.add_argument(
        "--serial",
        required=True,
        help="of the board, as it is printed on it and shown by `tessera status`",
    )
    parser.add_argument("--by", metavar="WHO", required=True, help="who answers for it")
    _add_place(parser)


def add_release(parser: ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--seconds", type=_seconds, metavar="N", help=f"for how long, at most {LONGEST_WINDOW}"
    )
    what.add_argument("--end", action="store_true", help="end the window that is open")
    _add_place(parser)


def add_reset_done(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        metavar="UUID",
        action="append",
        required=True,
        help="which GPU; may be given several times",
    )
    parser.add_argument("--by", metavar="WHO", required=True, help="who has reset it")
    _add_place(parser)


def _add_place(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--driver-name",
        metavar="NAME",
        help="whose plugin to ask (default: the plugin's own setting)",
    )
    parser.add_argument(
        "--plugin-dir",
        metavar="DIR",
        help="folder of the plugin's sockets (default: from the plugin's settings)",
    )


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= LONGEST_WINDOW:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1 to {LONGEST_WINDOW}")
    return int(text)
