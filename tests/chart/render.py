"""One rendering of the chart, and what is looked for in it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

REPO: Final = Path(__file__).resolve().parents[2]
CHART: Final = REPO / "charts" / "tessera"
E2E_VALUES: Final = REPO / "tests" / "e2e" / "values.yaml"
NAMESPACE: Final = "tessera-system"
KUBERNETES: Final = ("1.34.0", "1.35.0", "1.36.0", "1.37.0")

Object = dict[str, Any]


class Refused(Exception):
    """helm ended with an error; the text is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`files` and then `values` are laid over the chart's own values. `scratch`: for the test."""

    helm: Path
    scratch: Path
    files: tuple[Path, ...] = ()
    values: Mapping[str, object]

    def lint(self) -> str:
        return self._run("lint", "--strict", str(CHART))

    def render(self, *, kubernetes: str = KUBERNETES[-1]) -> list[Object]:
        text = self._run(
            "template", "tessera", str(CHART), "--namespace", NAMESPACE,
            "--kube-version", kubernetes,
        )  # fmt: skip
        return [document for document in yaml.safe_load_all(text) if document]

    def all(self, kind: str) -> list[Object]:
        return [each for each in self.render() if each["kind"] == kind]

    def one(self, kind: str) -> Object:
        (found,) = self.all(kind)
        return found

    def pod(self) -> Object:
        spec: Object = self.one("DaemonSet")["spec"]["template"]["spec"]
        return spec

    def container(self) -> Object:
        (found,) = self.pod()["containers"]
        container: Object = found
        return container

    def _run(self, *words: str) -> str:
        return _helm(self.helm, words, self.files, yaml.safe_dump(dict(self.values)))


@cache
def _helm(helm: Path, words: tuple[str, ...], files: tuple[Path, ...], values: str) -> str:
    """Many tests look at one rendering. The sources do not change while tests run."""
    options = [word for file in files for word in ("--values", str(file))]
    with TemporaryDirectory() as home:
        done = subprocess.run(
            [str(helm), *words, *options, "--values", "-"],
            input=values,
            capture_output=True,
            text=True,
            # Its own home: neither plugins nor settings of whoever runs the tests.
            env={"HOME": home, "PATH": "/usr/bin:/bin"},
            timeout=60,
            check=False,
        )
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout
