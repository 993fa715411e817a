"""What single values may look like. Each function returns the value or raises ValueError, whose
text says what is allowed; who set it is added by the loader.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import ValidationInfo

_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII
)
_MAX_SUBDOMAIN: Final = 253
_ADDRESS: Final = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]\s/]*):(?P<port>[0-9]{1,5})", re.ASCII
)
_MAX_PORT: Final = 65535
_PROFILE: Final = re.compile(r"[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)*)*", re.ASCII)
DEFAULT_PROFILES: Final = "default"
_PROFILES: Final = (
    "allowed: default, or MIG profiles as `nvidia-smi mig -lgip` names them, like 1g.10gb or"
    " 1g.10gb+me"
)
_FAULT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
"""As the value of a taint."""


class Endpoint(NamedTuple):
    """Where a server listens. `host` is empty for all addresses, without brackets for IPv6."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for an empty text. ValueError for anything that is not `[HOST]:PORT`."""
        if not text:
            return None
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > _MAX_PORT:
            raise ValueError(
                "allowed: :PORT, HOST:PORT, [IPV6]:PORT with a port up to 65535, or empty"
            )
        return cls(match["host"].strip("[]"), int(match["port"]))


def endpoint(text: str) -> str:
    Endpoint.parse(text)
    return text


def optional_url(text: str) -> str:
    """Empty, or one that is asked as it stands: no user, no fragment."""
    if not text:
        return text
    try:
        parts = urlsplit(text)
        plain = parts.hostname and parts.port != 0 and not (parts.username or parts.fragment)
    except ValueError:
        plain = False
    if not plain or parts.scheme not in {"http", "https"}:
        raise ValueError("allowed: http://HOST[:PORT]/PATH, the same with https, or empty")
    return text


def dns_subdomain(text: str) -> str:
    if len(text) > _MAX_SUBDOMAIN or _SUBDOMAIN.fullmatch(text) is None:
        raise ValueError(
            "allowed: a DNS subdomain (lower case letters, digits, '-' and '.';"
            " each part begins and ends with a letter or digit)"
        )
    return text


def absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("allowed: an absolute path without '..'")
    return path


def container_folder(text: str) -> str:
    return str(absolute(Path(text)))


def default_container_folders() -> tuple[str, ...]:
    """The loader's folders in images like Debian's and like Red Hat's, on this architecture."""
    return f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64"


def optional_path(value: object) -> object:
    """An empty flag or variable means: not set."""
    return None if value == "" else value


def split_profiles(value: object) -> object:
    """`default` alone, or names of MIG profiles."""
    found = split_list(value)
    if isinstance(found, tuple | list) and DEFAULT_PROFILES in found and len(found) > 1:
        raise ValueError("allowed: default, or a list of MIG profiles without it")
    return found


def mig_profile(text: str) -> str:
    if text != DEFAULT_PROFILES and _PROFILE.fullmatch(text) is None:
        raise ValueError(_PROFILES)
    return text


def some_profiles(found: tuple[str, ...]) -> tuple[str, ...]:
    if not found:
        raise ValueError(_PROFILES)
    return found


def some_folders(found: tuple[str, ...]) -> tuple[str, ...]:
    if not found:
        raise ValueError("allowed: one or more absolute paths, comma-separated")
    return found


def fault_name(text: str) -> str:
    if _FAULT.fullmatch(text) is None:
        raise ValueError("allowed: names of faults as `tessera explain` shows them, like xid-95")
    return text


def split_list(value: object) -> object:
    """Flags and variables are texts, the file has lists."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def with_claims_watched(count: int, info: ValidationInfo) -> int:
    """Which GPUs are idle is told by claims."""
    if count and info.data.get("rerank") == "static":
        raise ValueError(
            "rerank is static, so no claim is watched and no GPU is known to be idle; set rerank to"
            " dynamic, or min_whole_gpus to 0"
        )
    return count
