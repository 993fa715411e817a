"""One run of `tessera status`, `explain`, `ack`, `release` or `reset-done`: ask the plugin, print
its answer.

Exit codes: 0, answered and done; 1, no plugin answers, or it refuses; 2, what was asked for is not
there, or asked for wrongly.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TextIO

from driver.config.load import load
from driver.config.settings import PluginSettings
from driver.control.client import Client
from driver.control.text import status

OK, FAILED = 0, 1
_GPU: Final = "GPU-"


def show_status(chosen: Namespace, out: TextIO, environ: Mapping[str, str]) -> int:
    client = _client(chosen, environ)
    found = client.ask("GET", "/v1/status")
    with client.expecting_this_version():
        out.write(json.dumps(found, indent=2) + "\n" if chosen.json else status(found))
    return OK


def explain(chosen: Namespace, out: TextIO, environ: Mapping[str, str]) -> int:
    kind = "gpu" if chosen.device.startswith(_GPU) else "device"
    client = _client(chosen, environ)
    found = client.ask("GET", "/v1/explain", query={kind: chosen.device})
    with client.expecting_this_version():
        _print(out, f"{found['device'] or found['gpu']}: ", found["lines"])
    return OK


def acknowledge(chosen: Namespace, out: TextIO, environ: Mapping[str, str]) -> int:
    body = {key: getattr(chosen, key) for key in ("gpu", "name", "serial", "by")}
    client = _client(chosen, environ)
    found = client.ask("POST", "/v1/ack", body=body)
    with client.expecting_this_version():
        _print(out, f"{found['gpu']}: acknowledged; now ", found["lines"])
    return OK


def release(chosen: Namespace, out: TextIO, environ: Mapping[str, str]) -> int:
    client = _client(chosen, environ)
    if chosen.end:
        found = client.ask("DELETE", "/v1/release")
        with client.expecting_this_version():
            ended = found["ended"]
        out.write("ended, the GPUs are looked at again\n" if ended else "no window is open\n")
        return OK
    found = client.ask("POST", "/v1/release", body={"seconds": chosen.seconds})
    with client.expecting_this_version():
        held, left = found["held"], f"{found['secondsLeft']:.0f} s"
    if held:
        out.write(
            "the window is open, but a call has not returned from NVML, so a GPU is still held;"
            " see dmesg, and `tessera status` for when it is let go of\n"
        )
        return FAILED
    out.write(f"all GPUs are let go of for {left}; to end it sooner: tessera release --end\n")
    return OK


def reset_done(chosen: Namespace, out: TextIO, environ: Mapping[str, str]) -> int:
    client = _client(chosen, environ)
    found = client.ask("POST", "/v1/reset", body={"gpus": chosen.gpu, "by": chosen.by})
    with client.expecting_this_version():
        for gpu, lines in found["gpus"].items():
            _print(out, f"{gpu}: noted as reset; now ", lines)
    return OK


def _client(chosen: Namespace, environ: Mapping[str, str]) -> Client:
    if chosen.plugin_dir is not None:
        return Client(Path(chosen.plugin_dir))
    # The node's name is the one setting without a default, and of no account here.
    flags = {"node_name": "localhost"}
    if chosen.driver_name is not None:
        flags["driver_name"] = chosen.driver_name
    return Client(load(PluginSettings, flags=flags, environ=environ).plugin_dir)


def _print(out: TextIO, head: str, lines: list[str]) -> None:
    first, *rest = lines
    out.write(head + "\n".join((first, *(f"  {line}" for line in rest))) + "\n")
