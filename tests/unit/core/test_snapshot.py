"""What does not answer for a moment must not withdraw a device."""

from dataclasses import replace

from driver.core.snapshot import with_known_geometry, with_lost
from tests.unit.core.given import cut, gpu, instance, snapshot, uuid


def blind(facts):
    """The same GPU, of which the partitions could not be read."""
    return replace(
        facts, mig=replace(facts.mig, geometry=None, instances=(), unread="a call failed")
    )


KNOWN = cut(0, instance("1g.10gb", 6, "MIG-a"))
BEFORE = {uuid(0): KNOWN}


def test_what_could_not_be_read_is_as_it_was():
    assert with_known_geometry(snapshot(blind(KNOWN), cut(1)), BEFORE) == snapshot(KNOWN, cut(1))


def test_what_was_read_counts_even_where_it_is_less():
    assert with_known_geometry(snapshot(cut(0)), BEFORE) == snapshot(cut(0))


def test_other_facts_are_those_of_now():
    moved = replace(blind(KNOWN), index=5, mig=replace(blind(KNOWN).mig, enabled=True))
    (found,) = with_known_geometry(snapshot(moved), BEFORE).gpus
    assert (found.index, found.mig.enabled, found.mig.geometry) == (5, True, KNOWN.mig.geometry)


def test_nothing_is_invented():
    here = snapshot(blind(cut(1)), gpu(2), replace(blind(KNOWN), mig=gpu(2).mig))
    assert with_known_geometry(here, {}) == here
    unable = replace(KNOWN, mig=replace(KNOWN.mig, capable=False, geometry=None))
    assert with_known_geometry(snapshot(unable), BEFORE) == snapshot(unable)


def test_a_gpu_that_does_not_answer_is_as_it_was_until_it_does():
    before = {uuid(0): KNOWN, uuid(1): cut(1)}
    assert with_lost(snapshot(cut(1)), before).gpus == (cut(1), KNOWN)
    assert with_lost(snapshot(gpu(0), cut(1)), before) == snapshot(gpu(0), cut(1))


def test_a_gpu_whose_address_another_one_has_was_replaced():
    new = replace(gpu(7), pci=KNOWN.pci)
    assert with_lost(snapshot(new), BEFORE) == snapshot(new)
