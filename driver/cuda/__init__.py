"""The CUDA driver as a port: the only package that calls libcuda, and only from child processes.

Nothing is imported here: the child starts through this package, and must start fast.
"""
