"""Which steps a claim needs, in which order."""

import pytest

from driver.core.claims import Intent, Wanted
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.ledger import Made
from driver.core.prepare import FindPartition, MakePartition, OpenPartition, SwitchMode, plan_steps
from tests.data.mig_boards import A100_80, H100
from tests.unit.core.given import cut, gpu, instance, part, snapshot, uuid

NODE = build_inventory(
    snapshot(
        cut(0),
        cut(1),
        gpu(2),
        cut(3, instance("1g.10gb", 2, "MIG-x", number=9), enabled=True, pending=True,
            board=A100_80, switchable=False),
    )
)  # fmt: skip


def spell(steps):
    """One word a step, to read in order."""
    words = []
    for step in steps:
        number = int(step.gpu[4:12], 16)
        match step:
            case SwitchMode(on=on):
                words.append(f"{number} {'on' if on else 'off'}")
            case MakePartition() | OpenPartition():
                verb = "make" if isinstance(step, MakePartition) else "open"
                words.append(f"{number} {verb} {step.profile.name}@{step.placement.start}")
            case FindPartition(expected=made):
                words.append(f"{number} find {made.uuid}")
    return words


def steps(*devices, admin=False):
    wanted = tuple(Wanted(request="r", device=NODE.devices[d], admin_access=admin) for d in devices)
    return plan_steps(Intent(namespace="n", name="a", uid=ClaimUID("u"), wanted=wanted))


P = part


@pytest.mark.parametrize(
    ("devices", "admin", "expected"),
    [
        ((), False, []),
        (("gpu-00000002",), False, []),
        (("gpu-00000000",), False, ["0 off"]),
        (("gpu-00000000",), True, []),
        ((P(0, "1g.10gb", 6),), False, ["0 on", "0 make 1g.10gb@6"]),
        ((P(0, "1g.10gb", 6),), True, ["0 open 1g.10gb@6"]),
        ((P(0, "3g.40gb", 4), P(0, "1g.10gb", 0)), False,
         ["0 on", "0 make 1g.10gb@0", "0 make 3g.40gb@4"]),
        ((P(1, "2g.20gb", 2), "gpu-00000000", P(1, "1g.10gb", 0)), False,
         ["0 off", "1 on", "1 make 1g.10gb@0", "1 make 2g.20gb@2"]),
        ((P(3, "1g.10gb", 2),), False, ["3 find MIG-x"]),
        ((P(3, "1g.10gb", 2),), True, ["3 find MIG-x"]),
    ],
)  # fmt: skip
def test_modes_come_first_and_partitions_by_name(devices, admin, expected):
    assert spell(steps(*devices, admin=admin)) == expected


def test_a_step_says_exactly_where():
    (_, made) = steps(part(0, "3g.40gb", 4))
    assert isinstance(made, MakePartition)
    assert (made.gpu, made.profile) == (uuid(0), H100.profile("3g.40gb"))
    assert (made.placement.start, made.placement.size) == (4, 4)
    (found,) = steps(part(3, "1g.10gb", 2))
    assert isinstance(found, FindPartition)
    assert found.expected == Made(instance=9, compute=0, uuid="MIG-x")
