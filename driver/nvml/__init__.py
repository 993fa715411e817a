"""NVML as a port: the only package that imports pynvml."""

from driver.nvml.calls import on_failure
from driver.nvml.library import NvmlLibrary
from driver.nvml.partitions import NvmlPartitions

__all__ = ["NvmlLibrary", "NvmlPartitions", "on_failure"]
