"""What people read when something goes wrong: one line that says where, what and which code."""

import pytest

from driver.core import errors
from driver.core.errors import ClaimError, GpuLost, KubeConflict, KubeError, NvmlError, TesseraError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            GpuLost("fell off the bus", call="nvmlDeviceGetUUID", code=15, gpu="index 3"),
            "nvmlDeviceGetUUID for index 3: fell off the bus (NVML code 15)",
        ),
        (NvmlError("no", call="nvmlInit", code=9), "nvmlInit: no (NVML code 9)"),
        (
            KubeConflict("changed meanwhile", what="PUT slice a", status=409),
            "PUT slice a: changed meanwhile (HTTP 409)",
        ),
        (KubeError("no answer", what="LIST slices"), "LIST slices: no answer"),
    ],
)
def test_an_error_is_one_line_that_names_call_object_and_code(error, line):
    assert str(error) == line


def test_a_claim_is_asked_for_again_unless_it_can_never_succeed():
    assert ClaimError("later").retryable
    assert not ClaimError("never", retryable=False).retryable


def test_every_error_of_ours_is_in_the_tree_that_is_drawn():
    tree = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert [e for e in tree if not issubclass(e, TesseraError)] == []
    assert [e for e in tree if e.__name__ not in (errors.__doc__ or "")] == []
