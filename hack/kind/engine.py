"""The container engine: the machine's own where it can pull images, else one that we start.

Why it exists: kind needs an engine that may run privileged containers. Ours lives in a network,
a mount and a pid namespace with a private /run, so that the end of its first process, however it
comes about, is the end of every process, mount, address and socket it made.

Must not know: clusters, images by name.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hack.kind import cgroups
from hack.kind.host import Host
from hack.kind.paths import HERE, State
from hack.kind.process import Identity, children, daemon, end
from hack.kind.shell import Failure, output, require, say, step, succeeds

SOCKET_LIMIT: Final = 107
# tini is the first process: it reaps orphaned shims, passes SIGTERM on, and takes the namespaces
# with it when dockerd ends.
SETUP: Final = """
mount -t tmpfs -o mode=755 tmpfs /run
mount --make-rshared /
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
exec tini -- "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """`enter`: what to put before a command so that it reaches the engine's network."""

    own: bool
    enter: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def env(self, *bin_folders: Path) -> dict[str, str]:
        path = os.pathsep.join([*map(str, bin_folders), os.environ.get("PATH", os.defpath)])
        # The classic builder is part of every engine; BuildKit's front end would be pulled.
        return {**os.environ, **self.variables, "PATH": path, "DOCKER_BUILDKIT": "0"}

    def docker(self, *arguments: str, text: str | None = None, timeout: float = 120) -> str:
        return output(["docker", *arguments], env=self.env(), text=text, timeout=timeout)

    def has_image(self, name: str) -> bool:
        return succeeds(["docker", "image", "inspect", name], env=self.env())

    def load_archive(self, name: str, archive: Path) -> None:
        """Make the image known to the engine, if it is not yet, in place of its older tags."""
        if self.has_image(name):
            return
        with step(f"load of {name} into the engine"):
            self.docker("load", "-q", "-i", str(archive), timeout=600)
        listing = ("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", name.partition(":")[0])
        if old := [found for found in self.docker(*listing).split() if found != name]:
            self.docker("image", "rm", "-f", *old)


def machine_engine(image: str) -> Engine | None:
    """The engine that this machine already runs, if it has `image` or can pull it."""
    engine = Engine(own=False)
    if not shutil.which("docker") or not succeeds(["docker", "info"]):
        return None
    if engine.has_image(image) or succeeds(["docker", "manifest", "inspect", image]):
        return engine
    say("the running engine can pull no image; starting one of our own")
    return None


def own_engine(state: State) -> Engine | None:
    """Our engine, if its recorded process lives and it answers."""
    who = Identity.load(state.engine_record)
    if who is None or not who.alive():
        return None
    engine = _handle(state, who)
    return engine if succeeds(["docker", "version"], env=engine.env()) else None


def _handle(state: State, who: Identity) -> Engine:
    return Engine(
        own=True,
        enter=("nsenter", f"--net=/proc/{who.pid}/ns/net", "--"),
        variables={"DOCKER_HOST": f"unix://{_socket(state)}"},
    )


def _socket(state: State) -> Path:
    path = state.engine / "docker.sock"
    if len(str(path)) > SOCKET_LIMIT:
        raise Failure(f"{path} is too long for a socket; set TESSERA_KIND_STATE to a shorter path")
    return path


def settings(state: State, host: Host) -> dict[str, object]:
    """The engine's configuration file. /run is private, so its default places need no names."""
    document: dict[str, object] = {
        "data-root": str(state.engine / "data"),
        "hosts": [f"unix://{_socket(state)}"],
        "cgroup-parent": f"/{state.cgroup}",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "storage-driver": "overlay2",
        "shutdown-timeout": 5,
    }
    if not host.may_raise_limits:
        document["runtimes"] = {"stripped": {"path": str(_wrapper(state))}}
        document["default-runtime"] = "stripped"
    return document


def _wrapper(state: State) -> Path:
    return state.engine / "runc-wrapper"


def start(state: State, host: Host) -> Engine:
    """Start our engine after removing what an unclean end left."""
    require("dockerd", "docker", "tini", "unshare", "nsenter", "ip", "iptables", "runc", "jq")
    stop(state)
    state.engine.mkdir(parents=True, exist_ok=True)
    # A copy: the engine may outlive the checkout that started it.
    shutil.copy2(HERE / "files" / "runc-wrapper", _wrapper(state))
    _forbid_restarts(state.engine / "data")
    configuration = state.engine / "daemon.json"
    configuration.write_text(json.dumps(settings(state, host), indent=1))
    log = state.logs / "engine.log"
    log.unlink(missing_ok=True)
    argv = [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
        "--",
        "sh",
        "-euc",
        SETUP,
        "engine",
        "dockerd",
        "--config-file",
        str(configuration),
    ]
    with step("container engine"), daemon(argv, log, env=os.environ, timeout=60) as child:
        who = Identity.of(child.pid)
        if who is None:
            raise Failure(f"the engine ended at once; see {log}")
        who.save(state.engine_record)
    engine = _handle(state, who)
    _forget_containers(engine)
    return engine


def _forbid_restarts(data: Path) -> None:
    """Nodes of an engine that was killed must not start with the next one: where a folder that
    they mount is gone, it would be made anew, in the way of the next cluster."""
    for path in data.glob("containers/*/hostconfig.json"):
        document = json.loads(path.read_text())
        document["RestartPolicy"] = {"Name": "no", "MaximumRetryCount": 0}
        path.write_text(json.dumps(document))


def _forget_containers(engine: Engine) -> None:
    """Containers of an engine that was killed: their namespaces are gone, so they are of no use."""
    if left := engine.docker("ps", "-aq").split():
        say(f"removing {len(left)} containers of an engine that did not end cleanly")
        engine.docker("rm", "-f", "-v", *left)
    if engine.docker("network", "ls", "-q", "--filter", "name=^kind$").split():
        engine.docker("network", "rm", "kind")
    engine.docker("volume", "prune", "-f")


def stop(state: State) -> None:
    """End our engine, if one is recorded, and remove all that can outlive it. Idempotent."""
    who = Identity.load(state.engine_record)
    if who is not None and who.alive():
        _terminate(who)
    deadline = time.monotonic() + 10
    while left := cgroups.remove(state.cgroup):
        # Processes of an engine that was killed a moment ago may still be dying; on cgroup v1
        # nothing tells when a group becomes empty.
        if time.monotonic() > deadline:
            raise Failure(f"control groups are still in use: {', '.join(map(str, left[:3]))}")
        time.sleep(0.05)
    (state.engine / "docker.sock").unlink(missing_ok=True)
    state.engine_record.unlink(missing_ok=True)


def _terminate(who: Identity) -> None:
    """Ask the first process inside; if it does not end, kill the one outside, and it with it."""
    for pid in children(who.pid):
        first = Identity.of(pid)
        if first is not None:
            end(first, signal.SIGTERM, timeout=20)
    if not end(who, signal.SIGKILL, timeout=10):
        raise Failure(f"the engine (pid {who.pid}) does not end; look at it with `ps -p {who.pid}`")
