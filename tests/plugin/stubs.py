"""The smallest honest stand-ins for the plugin's ports: state in memory, failures on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver.core.cdi import DeviceNode, DriverFiles, JsonValue, Mount
from driver.core.errors import KubeNotFound, NvmlError, StateError
from driver.core.ids import ClaimUID
from driver.core.ledger import Entry
from driver.core.snapshot import DriverFacts, GpuFacts, NodeSnapshot
from driver.ports.kube import JsonObject, Listing, Resource
from driver.ports.state import PartitionAt
from tests.unit.core import given

DRIVER, NODE, POOL = given.DRIVER, given.NODE, given.POOL
gpu = given.gpu


def device(number: int) -> str:
    return f"gpu-{number:08x}"


def snapshot(count: int) -> NodeSnapshot:
    return NodeSnapshot(
        driver=DriverFacts(driver="580.95.05"), gpus=tuple(gpu(i) for i in range(count))
    )


@dataclass
class Library:
    """Answers with `answers` in turn, the last one for ever; an error among them is raised."""

    answers: list[NodeSnapshot | NvmlError]
    closed: int = 0

    def snapshot(self) -> NodeSnapshot:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1

    def close_idle(self, seconds: float) -> float:
        self.closed += 1
        return seconds


@dataclass
class MemoryLedger:
    kept: dict[ClaimUID, Entry] = field(default_factory=dict)
    puts: int = 0
    broken: str = ""
    newer: dict[ClaimUID, str] = field(default_factory=dict)

    def unread(self) -> Mapping[ClaimUID, str]:
        return self.newer

    def entries(self) -> Mapping[ClaimUID, Entry]:
        return dict(self.kept)

    def put(self, entry: Entry) -> None:
        if self.broken:
            raise StateError(self.broken)
        self.puts += 1
        self.kept[entry.uid] = entry

    def remove(self, uid: ClaimUID) -> None:
        if self.broken:
            raise StateError(self.broken)
        self.kept.pop(uid, None)


@dataclass
class MemoryCdi:
    specs: dict[ClaimUID, Mapping[str, JsonValue]] = field(default_factory=dict)
    broken: set[ClaimUID] = field(default_factory=set)

    def ensure(self, uid: ClaimUID, spec: Mapping[str, JsonValue]) -> bool:
        if uid in self.broken:
            raise StateError(f"cannot write the file of {uid}")
        written = self.specs.get(uid) != spec
        self.specs[uid] = spec
        return written

    def remove(self, uid: ClaimUID) -> None:
        self.specs.pop(uid, None)

    def claims(self) -> frozenset[ClaimUID]:
        return frozenset(self.specs)

    def read(self, uid: ClaimUID) -> JsonValue | None:
        spec = self.specs.get(uid)
        return None if spec is None else dict(spec)


@dataclass
class Root:
    """A driver root in which every GPU has its node, unless `missing` says what has not."""

    missing: str = ""

    def files(
        self, gpus: tuple[GpuFacts, ...], partitions: tuple[PartitionAt, ...] = ()
    ) -> DriverFiles:
        if self.missing:
            raise StateError(self.missing)
        nodes = {
            g.uuid: DeviceNode(
                path=f"/dev/nvidia{g.minor}",
                host_path=f"/dev/nvidia{g.minor}",
                major=195,
                minor=g.minor,
            )
            for g in gpus
        }
        control = DeviceNode(
            path="/dev/nvidiactl", host_path="/dev/nvidiactl", major=195, minor=255
        )
        library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
        return DriverFiles(
            gpus=nodes,
            control=(control,),
            mounts=(Mount(host_path=library, container_path=library),),
            capabilities={p.made.uuid: (_capability(p.made.instance),) for p in partitions},
        )


def _capability(number: int) -> DeviceNode:
    path = f"/dev/nvidia-caps/nvidia-cap{number}"
    return DeviceNode(path=path, host_path=path, major=511, minor=number)


@dataclass
class ClaimsApi:
    """Only what a preparation asks of the API: one claim by name."""

    claims: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    failure: Exception | None = None

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject:
        assert resource.plural == "resourceclaims"
        if self.failure is not None:
            raise self.failure
        try:
            return self.claims[namespace, name]
        except KeyError:
            raise KubeNotFound("not found", what=f"get {name}", status=404) from None

    def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listing:
        assert (resource.plural, namespace, labels, fields) == ("resourceclaims", "", "", "")
        if self.failure is not None:
            raise self.failure
        return Listing(items=tuple(self.claims.values()), version="1")


def claim(
    name: str, *devices: str, uid: str = "", pool: str = POOL, driver: str = DRIVER, **more: object
) -> JsonObject:
    results = [
        {"request": f"r{i}", "driver": driver, "pool": pool, "device": d, **more}
        for i, d in enumerate(devices)
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": "uid-pod"}],
        },
    }
