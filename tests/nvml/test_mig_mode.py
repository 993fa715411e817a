"""The MIG mode: on, off, or refused without leaving a wish behind."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from driver.core.errors import GpuLost, InUse, NotSupported, NvmlError, ResetRequired
from driver.nvml.calls import activate
from driver.ports.nvml import MigMode
from tests.nvml.migs import Cut, cut


def test_the_mode_of_a_board_that_can_do_it_changes_at_once(make_node) -> None:
    node = make_node("h100x1")
    gpu = Cut(node=node)
    assert gpu.partitions.instances(gpu.uuid) == ()
    for on in (True, False):
        gpu.partitions.set_mode(gpu.uuid, on=on)
        assert gpu.partitions.mode(gpu.uuid) == MigMode(enabled=on, pending=on)
        assert node.gpu().mig.enabled is on
        gpu.partitions.set_mode(gpu.uuid, on=on)
    assert node.machine.calls("nvmlDeviceSetMigMode") == 2


@pytest.mark.parametrize("held", ["by an instance", "by a process"])
def test_the_mode_of_a_gpu_that_somebody_holds_stays(make_node, held) -> None:
    gpu = cut(make_node("h100x1"))
    if held == "by an instance":
        gpu.create()
    else:
        gpu.sim.busy()
    with pytest.raises(InUse, match=f"{gpu.uuid}: somebody holds the GPU: .* end that first"):
        gpu.partitions.set_mode(gpu.uuid, on=False)
    assert gpu.partitions.mode(gpu.uuid) == MigMode(enabled=True, pending=True)


@pytest.mark.parametrize("pending", [False, True], ids=["on our own", "on an earlier wish"])
def test_a_mode_that_only_a_reset_would_change_is_refused_and_what_is_pending_stays(
    make_node, pending
) -> None:
    gpu = Cut(node=make_node("dgx-a100"))
    gpu.sim.set(mig_pending=int(pending))
    with pytest.raises(ResetRequired, match="drain the node, then reset or reboot"):
        gpu.partitions.set_mode(gpu.uuid, on=True)
    assert gpu.partitions.mode(gpu.uuid) == MigMode(enabled=False, pending=pending)


def test_a_gpu_in_use_that_keeps_the_wish_for_its_next_reset_is_relieved_of_it(
    make_node, monkeypatch
) -> None:
    gpu = Cut(node=make_node("h100x1"))
    real = pynvml.nvmlDeviceSetMigMode

    def put_off(handle: Any, mode: int) -> int:
        if not mode:
            return int(real(handle, mode))
        gpu.sim.set(mig_pending=1)
        return int(pynvml.NVML_ERROR_IN_USE)

    monkeypatch.setattr(pynvml, "nvmlDeviceSetMigMode", put_off)
    with pytest.raises(InUse):
        gpu.partitions.set_mode(gpu.uuid, on=True)
    assert gpu.partitions.mode(gpu.uuid) == MigMode(enabled=False, pending=False)


def test_a_gpu_without_mig_has_no_mode_and_no_instances(make_node) -> None:
    gpu = Cut(node=make_node("l40sx8"))
    assert gpu.instances() == ()
    with pytest.raises(NotSupported):
        gpu.partitions.mode(gpu.uuid)


@pytest.mark.parametrize("how", ["as error", "as status"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pynvml.NVML_ERROR_IN_USE, InUse),
        (pynvml.NVML_ERROR_RESET_REQUIRED, ResetRequired),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        (pynvml.NVML_ERROR_UNKNOWN, NvmlError),
    ],
)
def test_a_change_that_did_not_happen_is_an_error_whichever_way_nvml_says_so(
    make_node, monkeypatch, how, code, kind
) -> None:
    node = make_node("h100x1")
    node.snapshot()
    if how == "as status":
        monkeypatch.setattr(pynvml, "nvmlDeviceSetMigMode", lambda *_: code)
    else:
        node.machine.rule("nvmlDeviceSetMigMode", ret=code)
    with pytest.raises(NvmlError) as caught:
        activate("nvmlDeviceSetMigMode", pynvml.nvmlDeviceGetHandleByIndex(0), 1, gpu="GPU 0")
    assert type(caught.value) is kind
    assert str(caught.value).endswith(f"(NVML code {code})")
