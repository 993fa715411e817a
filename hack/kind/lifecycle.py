"""Up, down and status: idempotent, and right after any end that a run may have had before.

Why it exists: a test run is killed, a machine restarts, a checkout changes; each time `up` must
lead to the cluster that is wanted now, and `down` to nothing.

Must not know: argument parsing, how nodes and images are made.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hack.kind import binaries, cache, cluster, config, debian, engine, gpus, nodeimage, versions
from hack.kind.cluster import Cluster
from hack.kind.config import Wanted
from hack.kind.engine import Engine
from hack.kind.host import Host
from hack.kind.paths import State, cache_root
from hack.kind.process import Identity
from hack.kind.shell import Failure, say, step


@contextmanager
def locked(state: State) -> Iterator[None]:
    """One command at a time changes a cluster. The kernel frees the lock however we end."""
    state.root.mkdir(parents=True, exist_ok=True)
    with state.lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command is changing this cluster; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def up(state: State, *, workers: int, preset: str) -> Cluster:
    """The wanted cluster: as it is, if it is up and the same; else new."""
    gpus.check(preset)
    host = Host.detect()
    with locked(state):
        chosen = engine.machine_engine(versions.OFFICIAL_NODE_IMAGE)
        programs = binaries.ensure(*(binaries.CLIENTS if chosen else ()))
        if chosen:
            image, archive = versions.OFFICIAL_NODE_IMAGE, None
        else:
            image, archive = nodeimage.ensure(programs, host)
        wanted = Wanted(workers=workers, preset=preset, image=image, own=chosen is None)
        if running := find(state):
            lack = _lack(running, wanted, host)
            if lack is None:
                say("already up")
                _refresh_gpus(state, wanted)
                return running
            say(f"replacing the cluster: {lack}")
        discard(state)
        chosen = chosen or engine.start(state, host)
        if archive:
            chosen.load_archive(image, archive)
        made = Cluster(engine=chosen, state=state, bin=programs.path)
        # Written before creation: what a killed creation leaves must be found by `down`.
        _record(state, wanted, host, programs.path)
        cluster.create(made, wanted, host)
        return made


def _fingerprint(wanted: Wanted, host: Host) -> str:
    """What must be equal for a running cluster to be the wanted one."""
    shape = config.render(
        wanted, host, audit=Path("/"), mounts={name: [] for name in wanted.worker_names}
    )
    return cache.key(asdict(wanted), shape)


def _refresh_gpus(state: State, wanted: Wanted) -> None:
    """New machines under a running cluster when the simulator changed: seconds, not a minute."""
    record = _recorded(state) or {}
    content = gpus.key(wanted.preset)
    if record.get("gpus") != content:
        say("the simulator changed: new GPUs under the running nodes; restart pods that use them")
        gpus.create(state, wanted.worker_names, wanted.preset)
        _write_record(state, {**record, "gpus": content})


def _record(state: State, wanted: Wanted, host: Host, programs: Path) -> None:
    document = {
        **asdict(wanted),
        "fingerprint": _fingerprint(wanted, host),
        "bin": str(programs),
        "gpus": gpus.key(wanted.preset),
    }
    _write_record(state, document)


def _write_record(state: State, document: dict[str, Any]) -> None:
    partial = state.cluster_record.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1))
    partial.rename(state.cluster_record)


def _recorded(state: State) -> dict[str, Any] | None:
    try:
        document = json.loads(state.cluster_record.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) and "bin" in document else None


def _lack(running: Cluster, wanted: Wanted, host: Host) -> str | None:
    """Why the cluster that is there is not the wanted one."""
    record = _recorded(running.state) or {}
    if record.get("fingerprint") != _fingerprint(wanted, host):
        changed = [name for name, value in asdict(wanted).items() if record.get(name) != value]
        return f"what is wanted changed ({', '.join(changed) or 'configuration'})"
    if missing := {wanted.control_plane, *wanted.worker_names} - set(running.containers()):
        return f"not running: {', '.join(sorted(missing))}"
    # A busy machine may be slow to answer; others may be working with the cluster.
    if not running.answers(timeout=30):
        return "its API server is not ready"
    return None


def find(state: State) -> Cluster | None:
    """The cluster that was created last, if its engine lives. It need not be complete."""
    record = _recorded(state)
    if record is None:
        return None
    chosen = engine.own_engine(state) if record.get("own") else Engine(own=False)
    if chosen is None:
        return None
    return Cluster(engine=chosen, state=state, bin=Path(record["bin"]))


def require(state: State) -> Cluster:
    if found := find(state):
        return found
    raise Failure("the cluster is not up; start it with `python3 -m hack.kind up`")


def discard(state: State) -> None:
    """Remove the cluster and our engine, whatever state they are in. Images stay for the next."""
    if running := find(state):
        with step("removal of the old cluster"):
            cluster.delete(running)
    engine.stop(state)
    gpus.remove(state)
    for folder in (state.audit, state.logs):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (state.cluster_record, state.kubeconfig, state.root / "kind.json"):
        file.unlink(missing_ok=True)


def down(state: State, *, purge: bool) -> None:
    """No process, mount, namespace or control group stays; with `purge` no file either."""
    with locked(state):
        discard(state)
        if purge:
            shutil.rmtree(state.root)


def status(state: State) -> dict[str, Any]:
    """What is there, for people and programs. Never fails because something is down."""
    running = find(state)
    record = _recorded(state) or {}
    answer: dict[str, Any] = {
        "up": False,
        "kubernetes": versions.KUBERNETES,
        "state": str(state.root),
        "cache": str(cache_root()),
        "nodes": [],
    }
    if running is None:
        return answer
    who = Identity.load(state.engine_record)
    answer |= {
        "up": running.answers(),
        "engine": {"own": running.engine.own, "pid": who.pid if who else None},
        "image": record.get("image"),
        "preset": record.get("preset"),
        "kubeconfig": str(state.kubeconfig),
        "audit_log": str(state.audit / "audit.log"),
        "gpus": {p.name: str(p) for p in sorted(state.gpus.glob("*"))},
    }
    if answer["up"]:
        answer["nodes"] = [_node(item) for item in running.nodes()]
    return answer


def _node(item: dict[str, Any]) -> dict[str, Any]:
    status = item["status"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    addresses = {a["type"]: a["address"] for a in status["addresses"]}
    return {
        "name": item["metadata"]["name"],
        "ready": conditions.get("Ready") == "True",
        "address": addresses.get("InternalIP"),
        "pods": item["spec"].get("podCIDR"),
        "kubelet": status["nodeInfo"]["kubeletVersion"],
    }


def current_entries() -> list[Path]:
    """Cache entries that today's sources would use; all others may go."""
    programs = binaries.planned()
    trees = [
        cache.entry("debian", debian.tree_key(packages))
        for packages in (nodeimage.PACKAGES, debian.PYTHON_BASE)
    ]
    return [
        *programs.entries,
        *binaries.link_folders(programs.entries),
        *trees,
        cache.entry(debian.BASE_NAME, debian.tree_key(debian.PYTHON_BASE)),
        cache.entry(nodeimage.NAME, nodeimage.key(programs, Host.detect())),
    ]


def clean(state: State) -> list[Path]:
    """Drop cache entries of other keys, but not what the recorded cluster uses."""
    kept = current_entries()
    if record := _recorded(state):
        links = Path(record["bin"])
        kept += [links, *(link.resolve().parent for link in links.glob("*"))]
    removed = cache.stale(kept)
    for path in removed:
        shutil.rmtree(path)
    return removed
