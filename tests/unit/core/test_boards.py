"""What each mode publishes, and what is refused with which reason."""

from dataclasses import replace

import pytest

from api.resource.types import Taint, TaintEffect
from driver.core.boards import Binding, NodeBoards, boards, check_binding, kept_taint, kept_whole
from driver.core.errors import ConfigError
from driver.core.geometry import Geometry, Placement, names
from driver.core.inventory import build_inventory
from driver.core.late_binding import TooLarge
from driver.core.modes import Assigned, Mode, Rule, assign
from driver.core.occupancy import Board, Partition
from driver.core.pools import build_pool
from driver.core.snapshot import ComputeFacts, GpuFacts, InstanceFacts, MigState
from tests.data.mig_boards import A30, A100_40, H100
from tests.unit.core.given import DRIVER, NODE, gpu, snapshot, uuid
from tests.unit.core.given_mig import live, mixed, node

HOPPER = MigState(capable=True, switchable=True, geometry=H100)
AMPERE_ON = MigState(capable=True, enabled=True, pending=True, geometry=A100_40)
WITHOUT = MigState(capable=False)
COMPUTE = ComputeFacts(id=0, uuid="MIG-1")


ODD = ("2g.20gb NVL", "2g.20gb_x", "2g.20GB", "2g.20gb.cc", f"2g.{'2' * 40}gb")


def made(*gpus: GpuFacts, rules: tuple[Rule, ...] = (), profiles: list[str] | None = None):
    return boards(gpus, assign(gpus, rules), profiles)


def broken(geometry: Geometry) -> Geometry:
    """A board with a profile that reaches beyond its slots."""
    first, *others = geometry.profiles
    beyond = replace(first, placements=(Placement(start=geometry.slots, size=1),))
    return Geometry(slots=geometry.slots, profiles=(beyond, *others))


def test_each_mode_publishes_its_own_in_the_order_of_the_bus():
    found = made(
        gpu(4, mig=HOPPER),
        gpu(1, mig=HOPPER),
        gpu(3, mig=WITHOUT),
        gpu(2, mig=AMPERE_ON),
        gpu(5, mig=HOPPER),
        gpu(6, mig=HOPPER),
        rules=(Rule(mode=Mode.EXCLUDED, index=5), Rule(mode=Mode.FULL, index=6)),
    )
    assert [(b.uuid, b.full, b.offer is not None) for b in found.boards] == [
        (uuid(1), True, True),
        (uuid(3), True, False),
        (uuid(4), True, True),
        (uuid(6), True, False),
    ]
    assert [(b.uuid, b.full, b.partitions()) for b in found.static] == [(uuid(2), False, 0)]
    assert not found.refused


def test_equal_gpus_share_one_offer():
    first, second = made(gpu(1, mig=HOPPER), gpu(2, mig=HOPPER)).boards
    assert first.offer is second.offer


def test_a_gpu_that_cannot_leave_mig_mode_is_not_offered_as_a_whole():
    (board,) = made(gpu(1, mig=AMPERE_ON), rules=(Rule(mode=Mode.DYNAMIC, index=1),)).boards
    assert (board.full, board.partitions()) == (False, 7 + 4 + 3 + 2 + 1)
    switchable = replace(HOPPER, enabled=True, pending=True)
    assert made(gpu(1, mig=switchable)).boards[0].full


def test_only_listed_profiles_are_offered_and_an_unknown_one_names_the_setting():
    (board,) = made(gpu(1, mig=HOPPER), profiles=["1g.10gb+me"]).boards
    assert board.offer is not None
    assert names(board.offer.profiles) == ["1g.10gb+me"]
    with pytest.raises(ConfigError, match=r"mig_profiles: MIG profile '1g\.18gb' is listed, but"):
        made(gpu(1, mig=HOPPER), profiles=["1g.10gb", "1g.18gb"])


def test_a_node_without_mig_takes_the_list_of_the_other_nodes():
    assert made(gpu(1, mig=WITHOUT), profiles=["1g.18gb"]).boards == (Board(uuid=uuid(1)),)


def test_a_geometry_that_no_counters_express_leaves_the_full_gpu_and_a_reason():
    odd = replace(HOPPER, geometry=broken(H100))
    found = made(gpu(1, mig=odd), gpu(2, mig=HOPPER))
    assert [(b.full, b.partitions() > 0) for b in found.boards] == [(True, False), (True, True)]
    assert list(found.refused) == [uuid(1)]
    assert (
        "cannot be told by counters: MIG profile 1g.10gb is placed at slot 8"
        in (found.refused[uuid(1)])
    )
    static = replace(AMPERE_ON, geometry=broken(A100_40))
    refused = made(gpu(3, mig=static))
    assert refused.static == (Board(uuid=uuid(3), full=False),)
    assert "cannot be told by counters" in refused.refused[uuid(3)]


@pytest.mark.parametrize("name", [*ODD, "1g.10gb"])
def test_a_gpu_whose_partitions_cannot_be_named_leaves_the_others_as_they_are(name):
    odd = replace(H100.profile("2g.20gb"), name=name)
    profiles = (*(p for p in H100.profiles if p.name != "2g.20gb"), odd)
    one = gpu(1, mig=replace(HOPPER, geometry=Geometry(slots=8, profiles=profiles)))
    found = made(one, gpu(2, mig=HOPPER))
    assert [(b.full, b.partitions() > 0) for b in found.boards] == [(True, False), (True, True)]
    assert repr(name) in found.refused[uuid(1)]
    pool = build_pool(build_inventory(snapshot(one, gpu(2, mig=HOPPER))), driver=DRIVER, node=NODE)
    assert len([d for s in pool.slices for d in s.devices]) == 2 + 17


def instance(number: int, profile: str, start: int, compute: int = 1) -> InstanceFacts:
    found = A100_40.profile(profile)
    return InstanceFacts(
        id=number,
        profile_id=found.id,
        placement=Placement(start=start, size=found.size),
        compute=(COMPUTE,) * compute,
    )


def test_a_static_gpu_publishes_the_partitions_that_are_there_whatever_is_listed():
    mig = replace(AMPERE_ON, instances=(instance(1, "3g.20gb", 4), instance(7, "1g.5gb", 0)))
    found = made(gpu(1, mig=mig), profiles=["2g.10gb"])
    assert found.existing == {
        Partition(gpu=uuid(1), profile="3g.20gb", start=4),
        Partition(gpu=uuid(1), profile="1g.5gb", start=0),
    }
    (board,) = found.static
    assert board.offer is not None
    assert names(board.offer.profiles) == ["1g.5gb", "3g.20gb"]
    assert found.boards == ()
    assert not found.refused


def test_a_static_instance_that_a_container_cannot_open_is_left_out_with_its_reason():
    unknown = replace(instance(4, "1g.5gb", 2), profile_id=99)
    mig = replace(
        AMPERE_ON,
        instances=(
            instance(1, "3g.20gb", 4, compute=0),
            instance(2, "2g.10gb", 0, compute=2),
            unknown,
        ),
    )
    found = made(gpu(1, mig=mig))
    assert not found.existing
    assert found.refused[uuid(1)] == (
        "GPU instance 1 is not published: it has 0 compute instances, not one;"
        " GPU instance 2 is not published: it has 2 compute instances, not one;"
        " GPU instance 4 is not published: its profile 99 is unknown"
    )


def test_a_static_gpu_of_which_nvml_names_no_profile_is_refused_with_that_reason():
    found = made(gpu(1, mig=replace(AMPERE_ON, geometry=None)))
    assert found == NodeBoards(
        static=(Board(uuid=uuid(1), full=False),),
        refused={uuid(1): "no partitions are published, NVML names no MIG profile"},
    )


def test_starts_are_bound_late_only_where_no_sequence_gets_stuck():
    check_binding(node(2, listed=["1g.10gb", "7g.80gb"]), Binding.PREPARE)
    check_binding(mixed(None, None), Binding.PREPARE)
    check_binding(node(2), Binding.SCHEDULER)
    with pytest.raises(ConfigError) as caught:
        check_binding(mixed(A30, H100, listed=["1g.6gb", "3g.40gb", "4g.40gb"]), Binding.PREPARE)
    assert str(caught.value).startswith(
        "binding: prepare is not safe with the MIG profiles 3g.40gb, 4g.40gb; this sequence gets"
        " stuck: allocate 3g.40gb at 4, allocate 3g.40gb at 0, end 3g.40gb at 4, allocate 4g.40gb:"
        " admitted, but no start is free. Set mig_profiles to one profile"
    )


def test_what_cannot_be_shown_to_be_safe_is_refused_too(monkeypatch):
    verdict = TooLarge(reason="too many layouts")
    monkeypatch.setattr("driver.core.boards.check", lambda _offer: verdict)
    with pytest.raises(ConfigError, match=r"; too many layouts\. Set mig_profiles"):
        check_binding(node(1), Binding.PREPARE)


@pytest.mark.parametrize(
    ("count", "taken", "kept"),
    [
        (0, [], []),
        (1, [], [4]),
        (2, [], [3, 4]),
        (2, ["4", "2:1g.10gb@0"], [1, 3]),
        (9, ["0"], [1, 2, 3, 4]),
    ],
)
def test_the_last_idle_gpus_are_kept_whole(count, taken, kept):
    assert kept_whole(node(5), live(*taken), count) == {uuid(n) for n in kept}


def test_a_gpu_that_is_withheld_or_never_whole_is_not_counted_as_one_that_is_kept():
    three = (*node(2), replace(node(3)[2], full=False))
    assert kept_whole(three, live(), 1) == {uuid(1)}
    assert kept_whole(three, live(withheld={1: 1}), 1) == {uuid(0)}
    assert kept_whole(three, live(tainted=["1"]), 1) == {uuid(0)}
    assert kept_whole(three, live(tainted=["1:1g.10gb@0"]), 1) == {uuid(1)}


def test_the_taint_of_a_kept_gpu_bears_the_drivers_name():
    taint = Taint(key="gpu.tessera.dev/kept", value="whole", effect=TaintEffect.NO_SCHEDULE)
    assert kept_taint("gpu.tessera.dev") == taint


def test_a_mode_decides_and_not_the_reason_for_withholding():
    modes = {uuid(1): Assigned(mode=Mode.FULL, withheld_reason="MIG mode is off")}
    assert boards([gpu(1, mig=AMPERE_ON)], modes).boards == (Board(uuid=uuid(1)),)
