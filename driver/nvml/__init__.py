"""NVML as a port: the only package that imports pynvml."""

from driver.nvml.library import NvmlLibrary

__all__ = ["NvmlLibrary"]
