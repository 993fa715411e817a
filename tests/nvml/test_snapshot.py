"""What the adapter makes of a machine, field by field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pynvml
import pytest

from driver.core.ids import GpuUuid
from driver.core.snapshot import (
    DriverFacts,
    GpuFacts,
    LostGpu,
    MigState,
    NodeSnapshot,
    PciAddress,
)
from hack.simnvml.boards import board
from hack.simnvml.presets import PRESETS, identities
from tests.data.mig_boards import H100

ARCHITECTURES = {
    "turing": "Turing",
    "ampere": "Ampere",
    "ada": "Ada Lovelace",
    "hopper": "Hopper",
    "blackwell": "Blackwell",
}

MISSING = {
    "not supported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "no such function": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    "structure too new": pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    "not found": pynvml.NVML_ERROR_NOT_FOUND,
}

OPTIONAL: dict[str, dict[str, Any]] = {
    "nvmlDeviceGetMemoryInfo": {"memory": None},
    "nvmlDeviceGetMigMode": {"mig": MigState(capable=False)},
    "nvmlDeviceGetBrand": {"brand": None},
    "nvmlDeviceGetArchitecture": {"architecture": None},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability": None, "switchable": False},
    "nvmlDeviceGetSerial": {"serial": None},
    "nvmlDeviceGetAddressingMode": {"addressing_mode": None},
    "nvmlDeviceGetGpuFabricInfoV": {"nvlink_domain": None},
}

REQUIRED = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
)


def test_one_h100_is_read_to_the_last_field(make_node) -> None:
    node = make_node("h100x1", rendered=True)
    assert node.snapshot() == NodeSnapshot(
        driver=DriverFacts(driver="580.95.05", cuda=(13, 0)),
        gpus=(
            GpuFacts(
                uuid=GpuUuid(node.machine.gpu(0).uuid),
                index=0,
                minor=0,
                pci=PciAddress(domain=0, bus=0x1B, device=0),
                product="NVIDIA H100 80GB HBM3",
                memory=81559 * 2**20,
                mig=MigState(capable=True, switchable=True, geometry=H100),
                brand="Nvidia",
                architecture="Hopper",
                compute_capability=(9, 0),
                serial=str(node.machine.gpu(0).get("serial")),
                numa_node=0,
                pcie_root="pci0000:15",
            ),
        ),
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_read_as_it_was_built(make_node, preset) -> None:
    plan = PRESETS[preset]
    snapshot = make_node(preset, rendered=True, seed="some node").snapshot()
    assert snapshot.lost == ()
    assert len(snapshot.gpus) == len(plan.boards)
    names = identities("some node", len(plan.boards))
    for index, (gpu, key, seat) in enumerate(
        zip(snapshot.gpus, plan.boards, plan.seats, strict=False)
    ):
        built = board(key)
        assert (gpu.uuid, gpu.serial) == (names[index].uuid, names[index].serial)
        assert (gpu.index, gpu.minor) == (index, index)
        assert str(gpu.pci) == f"0000:{seat.bus:02x}:00.0"
        assert (gpu.pcie_root, gpu.numa_node) == (f"pci0000:{seat.root:02x}", seat.numa)
        assert (gpu.product, gpu.memory) == (built.product, built.memory_mib * 2**20)
        assert gpu.architecture == ARCHITECTURES[built.arch]
        assert gpu.compute_capability == built.compute_capability
        assert replace(gpu.mig, geometry=None) == MigState(
            capable=bool(built.profiles),
            switchable=bool(built.profiles) and not built.mig_needs_reset,
        )
        assert (gpu.mig.geometry is None) == (not built.profiles)
        assert gpu.addressing_mode == {"none": None, "hmm": "HMM", "ats": "ATS"}[built.addressing]


def test_mig_mode_is_told_as_it_is_now_and_as_it_will_be_after_a_reset(make_node) -> None:
    node = make_node("dgx-a100")
    gpu = node.machine.gpu(0)
    gpu.set(mig_pending=1)
    before = node.gpu().mig
    assert (before.enabled, before.pending) == (False, True)
    gpu.reset()
    assert node.gpu().mig == replace(before, enabled=True)


def test_only_gpus_of_a_multi_node_fabric_have_an_nvlink_domain(make_node) -> None:
    domains = {gpu.nvlink_domain for gpu in make_node("gb200-tray").snapshot().gpus}
    assert len(domains) == 1
    cluster, _, clique = str(domains.pop()).rpartition(".")
    assert (len(cluster), clique) == (36, "1")
    inside_one_node = make_node("dgx-h100").snapshot().gpus
    assert {gpu.nvlink_domain for gpu in inside_one_node} == {None}


def test_a_fabric_that_is_still_being_set_up_is_no_domain_yet(make_node) -> None:
    node = make_node("gb200-tray")
    node.machine.gpu(0).set(fabric_state=2)
    assert node.gpu(0).nvlink_domain is None
    assert node.gpu(1).nvlink_domain is not None


def test_a_driver_that_knows_only_the_older_fabric_structure_still_tells_the_domain(
    make_node,
) -> None:
    node = make_node("gb200-tray")
    domain = node.gpu().nvlink_domain
    node.machine.set(fabric_version_max=2)
    assert node.gpu().nvlink_domain == domain is not None


def test_a_board_that_shares_the_hosts_memory_has_none_of_its_own(make_node) -> None:
    node = make_node("h100x2")
    node.machine.gpu(0).set(mem_total=None)
    shared, own = node.snapshot().gpus
    assert (shared.memory, own.memory) == (None, 81559 * 2**20)


@pytest.mark.parametrize("why", MISSING)
@pytest.mark.parametrize("symbol", OPTIONAL)
def test_an_optional_field_that_is_not_there_is_none_and_nothing_else_changes(
    make_node, symbol, why
) -> None:
    node = make_node("gb200-tray")
    before = node.snapshot()
    with node.machine.rule(symbol, ret=MISSING[why], gpu=1):
        after = node.snapshot()
    assert after.lost == ()
    fields = dict(OPTIONAL[symbol])
    if "switchable" in fields:
        fields["mig"] = replace(before.gpus[1].mig, switchable=fields.pop("switchable"))
    assert after.gpus[1] == replace(before.gpus[1], **fields) != before.gpus[1]
    assert [g for g in after.gpus if g.index != 1] == [g for g in before.gpus if g.index != 1]


def test_a_driver_that_does_not_tell_its_cuda_version_gives_none(make_node) -> None:
    node = make_node()
    node.machine.set(absent="nvmlSystemGetCudaDriverVersion_v2")
    assert node.snapshot().driver == DriverFacts(driver="580.95.05", cuda=None)


def test_a_library_without_the_symbol_is_the_same_as_an_answer_not_supported(make_node) -> None:
    node = make_node()
    file = node.library_file()
    content = file.read_bytes()
    assert b"\0nvmlDeviceGetSerial\0" in content
    file.write_bytes(content.replace(b"\0nvmlDeviceGetSerial\0", b"\0nvmlDeviceGetSerium\0"))
    facts = node.gpu()
    assert facts.serial is None
    assert facts.brand == "Nvidia"


@pytest.mark.parametrize("symbol", REQUIRED)
def test_a_gpu_without_a_required_field_is_lost_by_name_while_the_others_go_on(
    make_node, symbol
) -> None:
    node = make_node("h100x4")
    before = node.snapshot()
    with node.machine.rule(symbol, ret=pynvml.NVML_ERROR_NOT_SUPPORTED, gpu=2):
        after = node.snapshot()
    call = symbol.removesuffix("_v2").removesuffix("_v3")
    assert after.lost == (
        LostGpu(
            where="GPU 2",
            reason=f"{call} for GPU 2: this board or driver does not support it (NVML code 3)",
        ),
    )
    assert after.gpus == tuple(g for g in before.gpus if g.index != 2)


def test_an_optional_field_that_fails_otherwise_is_not_taken_for_absent(make_node) -> None:
    node = make_node("h100x2")
    with node.machine.rule("nvmlDeviceGetMigMode", ret=pynvml.NVML_ERROR_UNKNOWN, gpu=0):
        snapshot = node.snapshot()
    assert [gpu.index for gpu in snapshot.gpus] == [1]
    (lost,) = snapshot.lost
    assert lost.reason == "nvmlDeviceGetMigMode for GPU 0: Unknown Error (NVML code 999)"


def test_a_gpu_off_the_bus_is_lost_and_is_found_again_after_its_reset(make_node) -> None:
    node = make_node("h100x2")
    node.machine.gpu(0).lose()
    snapshot = node.snapshot()
    assert [gpu.index for gpu in snapshot.gpus] == [1]
    assert [lost.where for lost in snapshot.lost] == ["GPU 0"]
    assert "reset it or reboot the node" in snapshot.lost[0].reason
    node.machine.gpu(0).reset()
    assert node.snapshot().lost == ()
    assert len(node.snapshot().gpus) == 2


def test_a_gpu_that_is_unplugged_moves_indexes_but_no_identity(make_node) -> None:
    node = make_node("h100x4")
    before = node.snapshot().gpus
    node.machine.gpu(1).unplug()
    after = node.snapshot()
    assert after.lost == ()
    assert after.gpus == (
        before[0],
        replace(before[2], index=1),
        replace(before[3], index=2),
    )


def test_a_node_without_gpus_has_an_empty_snapshot_that_names_the_driver(make_node) -> None:
    node = make_node("h100x1")
    node.machine.gpu(0).unplug()
    assert node.snapshot() == NodeSnapshot(
        driver=DriverFacts(driver="580.95.05", cuda=(13, 0)), gpus=()
    )
