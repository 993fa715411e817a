"""The settings of `tessera plugin`: one typed value, checked as a whole, never changed.

Why it exists: a setting is read in one place, and its name, default and help text stand in one
place; flags, environment variables, the file and the schema are all made from these fields.

Must not know where a value came from; `load.py` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from driver.config.gpus import GpuRule, read_list
from driver.config.values import (
    DEFAULT_PROFILES,
    Endpoint,
    absolute,
    container_folder,
    default_container_folders,
    dns_subdomain,
    endpoint,
    fault_name,
    mig_profile,
    optional_path,
    optional_url,
    some_folders,
    some_profiles,
    split_list,
    split_profiles,
    with_claims_watched,
)
from driver.core.boards import Binding
from driver.core.modes import Rule
from driver.core.packing import Policy

MAX_DRIVER_NAME: Final = 27
"""Longer, and the sockets of a rolling update (driver name and pod UID) do not fit 107 bytes."""

REQUIRED_LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")

_AbsolutePath = Annotated[Path, AfterValidator(absolute)]
_OptionalPath = Annotated[_AbsolutePath | None, BeforeValidator(optional_path)]
_Seconds = Annotated[float, Field(ge=1, le=86400, allow_inf_nan=False)]


class PluginSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", title="tessera plugin")

    driver_name: Annotated[str, AfterValidator(dns_subdomain)] = Field(
        "gpu.tessera.dev",
        max_length=MAX_DRIVER_NAME,
        description="name of the DRA driver, as DeviceClasses select it",
    )
    node_name: Annotated[str, AfterValidator(dns_subdomain)] = Field(
        description="name of this Node object; the chart sets it from spec.nodeName",
        json_schema_extra={"format": "hostname"},
    )
    pod_uid: str = Field(
        "",
        pattern=r"^[0-9A-Za-z-]{0,64}$",
        description="UID of the plugin's pod: lets two plugins overlap in a rolling update",
    )
    kubeconfig: _OptionalPath = Field(
        None, description="kubeconfig file; without it the pod's service account is used"
    )
    kubelet_plugins_dir: _AbsolutePath = Field(
        Path("/var/lib/kubelet/plugins"), description="the kubelet's folder for plugin data"
    )
    kubelet_registry_dir: _AbsolutePath = Field(
        Path("/var/lib/kubelet/plugins_registry"),
        description="the kubelet's folder for registration sockets",
    )
    cdi_dir: _AbsolutePath = Field(
        Path("/var/run/cdi"), description="folder of CDI files that the container runtime reads"
    )
    driver_root: _AbsolutePath = Field(
        Path("/"), description="root of the NVIDIA driver as the plugin sees it"
    )
    host_driver_root: _AbsolutePath = Field(
        # pydantic gives the fields before this one
        default_factory=lambda earlier: earlier["driver_root"],
        description="root of the NVIDIA driver as the container runtime sees it on the host",
    )
    nvml_library: _OptionalPath = Field(
        None, description="libnvidia-ml.so.1; without it, searched in driver_root"
    )
    required_libraries: Annotated[tuple[str, ...], BeforeValidator(split_list)] = Field(
        REQUIRED_LIBRARIES,
        description="driver libraries without which no claim is prepared, comma-separated",
    )
    container_library_dirs: Annotated[
        tuple[Annotated[str, AfterValidator(container_folder)], ...],
        BeforeValidator(split_list),
        AfterValidator(some_folders),
    ] = Field(
        default_factory=default_container_folders,
        description="folders in containers where driver libraries are mounted, comma-separated",
    )
    gpus: Annotated[tuple[GpuRule, ...], BeforeValidator(read_list)] = Field(
        (),
        description="rules for the mode of certain GPUs, as JSON; without one the hardware decides",
    )
    mig_profiles: Annotated[
        tuple[Annotated[str, AfterValidator(mig_profile)], ...],
        BeforeValidator(split_profiles),
        AfterValidator(some_profiles),
    ] = Field(
        (DEFAULT_PROFILES,),
        description="MIG profiles that may be made, comma-separated; default: every base profile"
        " that is smaller than the GPU",
    )
    policy: Policy = Field(
        Policy.PACKED,
        description="packed keeps whole GPUs whole, distributed spreads heat and faults",
    )
    rerank: Literal["dynamic", "static"] = Field(
        "dynamic",
        description="dynamic: the published order follows what is in use; static: it never changes",
    )
    binding: Binding = Field(
        Binding.SCHEDULER,
        description="who chooses where a partition starts: the scheduler, or its preparation",
    )
    min_whole_gpus: Annotated[int, AfterValidator(with_claims_watched)] = Field(
        0, ge=0, description="idle GPUs, from the last one, that new partitions stay away from"
    )
    partition_attributes: Literal["lean", "full"] = Field(
        "lean",
        description="attributes of partitions; each one more costs the scheduler time",
    )
    proc_root: _AbsolutePath = Field(Path("/proc"), description="where /proc of the host is")
    sys_root: _AbsolutePath = Field(Path("/sys"), description="where /sys of the host is")
    http_address: Annotated[str, AfterValidator(endpoint)] = Field(
        ":8080",
        description="[HOST]:PORT of /metrics, /healthz and /readyz; an empty value switches it off",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )
    log_format: Literal["json", "text"] = Field(
        "json", description="one JSON object a line, or text"
    )
    rescan_seconds: _Seconds = Field(60.0, description="seconds between two looks at the hardware")
    resync_seconds: _Seconds = Field(
        600.0, description="seconds between two full comparisons with the API server"
    )

    recovery_seconds: _Seconds = Field(
        300.0, description="seconds between two comparisons of ledger, hardware, files and claims"
    )
    orphan_grace_seconds: _Seconds = Field(
        120.0, description="seconds that a claim must be gone before its devices are taken back"
    )
    nvml_idle_seconds: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = Field(
        0.0, description="seconds after which NVML is let go of when nobody asks; 0: never"
    )

    health_seconds: _Seconds = Field(
        5.0, description="seconds between two looks at the health of the GPUs"
    )
    nvml_hang_seconds: _Seconds = Field(
        10.0, description="seconds after which a look through NVML is given up"
    )
    unknown_seconds: _Seconds = Field(
        60.0,
        description="seconds after which a GPU that cannot be looked at is withheld",
    )
    no_execute_faults: Annotated[
        tuple[Annotated[str, AfterValidator(fault_name)], ...], BeforeValidator(split_list)
    ] = Field(
        (),
        description="names of faults that end the pods of a device, such as xid-95,"
        " comma-separated; without one, faults only keep new pods away",
    )
    probe_deadline_seconds: _Seconds = Field(
        30.0, description="seconds after which a health probe is killed"
    )
    probe_period_seconds: Annotated[float, Field(ge=0, le=604800, allow_inf_nan=False)] = Field(
        0.0, description="seconds between probes of an idle GPU that nothing asked for; 0: none"
    )
    xid_catalogue: _OptionalPath = Field(
        None, description="file of what each Xid means; without it, the one that is built in"
    )
    kmsg_user_records: bool = Field(
        False, description="also believe what programs write into the kernel's log; for tests"
    )
    kmsg_path: _OptionalPath = Field(
        Path("/dev/kmsg"),
        description="the kernel's log, where the driver tells of faults; empty: not read",
    )
    dcgm_url: Annotated[str, AfterValidator(optional_url)] = Field(
        "",
        description="metrics of a dcgm-exporter on this node, as a second witness; empty: none",
        json_schema_extra={"format": "uri"},
    )

    @property
    def http_endpoint(self) -> Endpoint | None:
        """None: switched off. An empty host means all addresses of both families."""
        return Endpoint.parse(self.http_address)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(each.rule() for each in self.gpus)

    @property
    def profiles(self) -> tuple[str, ...] | None:
        """None: the default ones of each board."""
        return None if self.mig_profiles == (DEFAULT_PROFILES,) else self.mig_profiles

    @property
    def plugin_dir(self) -> Path:
        """Ours alone: service socket, ledger, locks."""
        return self.kubelet_plugins_dir / self.driver_name
