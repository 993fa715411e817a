"""NVML as a port: the only package that imports pynvml."""

from driver.nvml.library import NvmlLibrary
from driver.nvml.partitions import NvmlPartitions

__all__ = ["NvmlLibrary", "NvmlPartitions"]
