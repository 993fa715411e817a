"""Whatever the hardware and the administrator call things, ours are legal, distinct and stable."""

from hypothesis import given, strategies as st

from api.resource.limits import is_label, is_semver, is_subdomain
from driver.core.devices import clamp, semantic_version
from driver.core.ids import GpuUuid
from driver.core.names import gpu_device_names, pool_name, slice_name
from tests.property.strategies import NODE_NAMES, UUIDS

ALIKE = st.builds(
    lambda head, tail: GpuUuid(f"GPU-{head}{str(tail)[8:]}"),
    st.sampled_from(["4cf8db2d", "4CF8DB2D", "00000000"]),
    st.uuids(),
)
DRIVERS = st.sampled_from(["gpu.tessera.dev", "d" * 63])


@given(st.lists(UUIDS | ALIKE, max_size=12, unique_by=str.lower), st.randoms())
def test_device_names_are_labels_one_for_each_gpu_in_any_order_of_finding(uuids, random):
    names = gpu_device_names(uuids)
    assert names.keys() == set(uuids)
    assert len(set(names.values())) == len(uuids)
    assert all(map(is_label, names.values()))
    shuffled = random.sample(uuids, len(uuids))
    assert gpu_device_names(shuffled) == names


@given(st.lists(UUIDS, min_size=1, max_size=8, unique_by=lambda u: u[:12]))
def test_a_name_does_not_depend_on_which_other_gpus_answer(uuids):
    every = gpu_device_names(uuids)
    assert {u: gpu_device_names([u])[u] for u in uuids} == every


@given(NODE_NAMES, DRIVERS, st.integers(0, 99))
def test_pool_and_slice_names_are_legal_for_every_node_name(node, driver, position):
    name = slice_name(node, driver, position, "gpus")
    assert is_subdomain(name)
    assert name.endswith(f"-{driver}-{position:02d}-gpus")
    pool = pool_name(node)
    assert len(pool) <= 253
    assert all(map(is_subdomain, pool.split("/")))


@given(st.lists(NODE_NAMES, min_size=2, max_size=2, unique=True), DRIVERS)
def test_two_nodes_never_share_a_name(nodes, driver):
    one, other = nodes
    assert slice_name(one, driver, 0, "gpus") != slice_name(other, driver, 0, "gpus")
    assert pool_name(one) != pool_name(other)


@given(NODE_NAMES, DRIVERS)
def test_slices_sort_by_position(node, driver):
    names = [slice_name(node, driver, position, "gpus") for position in range(100)]
    assert names == sorted(names)


@given(st.text() | st.from_regex(r"\d{1,9}(\.\d{1,9}){0,4}[-+a-z]?"))
def test_a_version_of_a_vendor_becomes_semantic_or_nothing(text):
    version = semantic_version(text)
    assert version is None or is_semver(version)


@given(st.text(max_size=100))
def test_a_clamped_text_is_a_beginning_that_fits(text):
    short = clamp(text)
    assert text.startswith(short)
    assert len(short.encode()) <= 64
    assert short == text or len(short.encode()) > 60
