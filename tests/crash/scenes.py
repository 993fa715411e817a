"""What is prepared, on which GPUs, beside whom: the cases that every fault is tried in.

A device is written `GPU`, `GPU:profile:start` or, where the start is chosen at preparation,
`GPU:profile:nORDINAL`, with the GPU's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from driver.core.choices import Choices
from driver.ports.kube import JsonObject
from tests.crash.plugin import claim_object
from tests.crash.world import LATE

SMALL, MIDDLE = "1g.10gb", "3g.40gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`main` is the claim that the fault hits; `neighbour` is prepared before and must not notice.
    `elsewhere`: devices that the scheduler may choose for `main` another time. `rival`: devices
    that `main` excludes. `cut`: partitions of an administrator. `skips`: beginnings of operations
    that differ little from those of another scene.
    """

    name: str
    main: tuple[str, ...]
    neighbour: tuple[str, ...]
    elsewhere: tuple[str, ...]
    rival: tuple[str, ...]
    boards: Sequence[str] = ("h100-80", "h100-80")
    choices: Choices = field(default_factory=Choices)
    cut: tuple[tuple[int, str, int], ...] = ()
    skips: tuple[str, ...] = ()

    @property
    def static(self) -> bool:
        return bool(self.cut)

    @property
    def late(self) -> bool:
        return self.choices is LATE

    @property
    def partitions(self) -> bool:
        return any(":" in device for device in self.main)


SCENES = {
    scene.name: scene
    for scene in (
        Scene(name="whole", main=("0",), neighbour=(f"1:{SMALL}:6",),
              elsewhere=(f"0:{SMALL}:2",), rival=(f"0:{SMALL}:0",)),
        Scene(name="dynamic", main=(f"0:{SMALL}:4",), neighbour=(f"0:{SMALL}:0",),
              elsewhere=(f"1:{MIDDLE}:0",), rival=(f"0:{MIDDLE}:4",)),
        Scene(name="first", main=(f"0:{SMALL}:0",), neighbour=(f"1:{SMALL}:6",),
              elsewhere=(f"0:{SMALL}:5",), rival=("0",),
              skips=("re", "make", "lose", "after", "start", "forget")),
        Scene(name="two", main=(f"0:{MIDDLE}:4", f"1:{SMALL}:0"), neighbour=(f"0:{SMALL}:0",),
              elsewhere=(f"1:{SMALL}:3",), rival=(f"1:{SMALL}:0",),
              skips=("restore", "recover,", "after", "start", "forget")),
        Scene(name="mixed", main=(f"0:{MIDDLE}:4", "1"), neighbour=(f"0:{SMALL}:0",),
              elsewhere=(f"1:{SMALL}:3",), rival=("1",),
              skips=("prepare", "unprepare", "re", "lose", "after", "start", "forget")),
        Scene(name="static", main=(f"0:{MIDDLE}:4",), neighbour=(f"0:{SMALL}:2",),
              elsewhere=("1",), rival=(f"0:{MIDDLE}:4",), boards=("a100-80", "a100-80"),
              cut=((0, SMALL, 2), (0, MIDDLE, 4)), skips=("lose",)),
        Scene(name="late", main=(f"0:{SMALL}:n3",), neighbour=(f"0:{SMALL}:n1",),
              elsewhere=(f"1:{SMALL}:n0",), rival=(f"0:{SMALL}:n3",), choices=LATE,
              skips=("re", "prepare elsewhere", "lose", "start", "forget")),
    )
}  # fmt: skip


def device_names(devices: Sequence[str], gpus: Sequence[str]) -> list[str]:
    """`gpus`: the UUIDs, by number."""
    names = []
    for device in devices:
        number, *part = device.split(":")
        name = f"gpu-{gpus[int(number)][4:12]}"
        names.append(f"{name}-mig-{part[0].replace('.', '')}-{part[1]}" if part else name)
    return names


def claims_of(scene: Scene, gpus: Sequence[str]) -> dict[str, JsonObject]:
    return {
        name: claim_object(name, *device_names(devices, gpus))
        for name, devices in (
            ("main", scene.main), ("neighbour", scene.neighbour), ("rival", scene.rival),
            *((f"whole-{n}", (str(n),)) for n in range(len(gpus))),
        )
    }  # fmt: skip
