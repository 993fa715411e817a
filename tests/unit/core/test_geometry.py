"""What a board can be cut into, and how its parts are called."""

import pytest

from driver.core.errors import ConfigError
from driver.core.geometry import Placement, free_starts, names, offers
from driver.core.ids import DeviceName
from driver.core.names import PartitionName, partition_name, profile_label, read_partition_name
from tests.data.mig_boards import A30, A100_40, BOARDS, H100, RTX_PRO_6000


def test_slots_are_bits():
    assert Placement(start=4, size=4).mask == 0b1111_0000
    assert Placement(start=0, size=1).mask == 0b1


def test_a_profile_is_free_where_it_meets_no_slot_in_use():
    three, double = H100.profile("3g.40gb"), H100.profile("1g.20gb")
    assert free_starts(three, 0) == (0, 4)
    assert free_starts(three, 0b0000_1000) == (4,)
    assert free_starts(double, 0b0101_0000) == (0, 2)


def test_a_profile_lies_at_its_own_starts_only():
    assert H100.profile("2g.20gb").mask(4) == 0b0011_0000
    with pytest.raises(KeyError, match=r"2g\.20gb cannot start at slot 6, only at \[0, 2, 4\]"):
        H100.profile("2g.20gb").mask(6)


@pytest.mark.parametrize(
    ("board", "default"),
    [
        (H100, ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"]),
        (A30, ["1g.6gb", "2g.12gb"]),
        (RTX_PRO_6000, ["1g.24gb", "2g.48gb"]),
    ],
)
def test_by_default_variants_and_the_double_of_the_full_gpu_are_not_offered(board, default):
    (offer,) = offers([board])
    assert names(offer.profiles) == default


def test_a_listed_profile_is_offered_by_the_boards_that_have_it():
    h100, a30 = offers([H100, A30], ["7g.80gb", "1g.10gb+me", "1g.10gb"])
    assert names(h100.profiles) == ["1g.10gb", "1g.10gb+me", "7g.80gb"]
    assert a30.profiles == ()


def test_a_profile_that_no_board_has_is_refused_by_name_with_what_there_is():
    with pytest.raises(ConfigError, match=r"'1g\.12gb' is listed.*there are 1g\.6gb, 2g\.12gb, "):
        offers([A30], ["1g.6gb", "1g.12gb"])


def test_equal_boards_share_one_offer():
    first, second = offers([H100, H100])
    assert first is second
    assert offers([H100])[0] is first


@pytest.mark.parametrize(
    ("profile", "label"),
    [
        ("1g.10gb", "1g10gb"),
        ("1g.10gb+me", "1g10gb-me"),
        ("1g.24gb-me", "1g24gb-nome"),
        ("1g.24gb+gfx", "1g24gb-gfx"),
        ("2g.48gb+me.all", "2g48gb-meall"),
    ],
)
def test_a_profile_is_a_dns_label_in_a_device_name(profile, label):
    assert profile_label(profile) == label
    name = partition_name(DeviceName("gpu-4cf8db2d"), profile, 6)
    assert name == f"gpu-4cf8db2d-mig-{label}-6"
    assert read_partition_name(name) == PartitionName(
        gpu=DeviceName("gpu-4cf8db2d"), label=label, start=6
    )


def test_no_two_profiles_of_a_board_are_called_the_same():
    for board in BOARDS.values():
        assert len({p.label for p in board.profiles}) == len(board.profiles)


@pytest.mark.parametrize("name", ["gpu-4cf8db2d", "gpu-4cf8db2d-mig-1g10gb", "mig-1g10gb-0", ""])
def test_what_is_not_called_like_a_partition_is_none(name):
    assert read_partition_name(name) is None


def test_a_geometry_is_a_value():
    assert hash(A100_40) == hash(type(A100_40)(slots=8, profiles=A100_40.profiles))
    assert type(A100_40)(slots=8, profiles=A100_40.profiles) == A100_40
    assert A100_40 != H100
