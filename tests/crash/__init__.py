"""What a plugin that dies at any instruction leaves, and whether the next one can live with it.

Real SIGKILL, the real NVML binding over simulated GPUs, real files; the API alone is a stub. See
`python -m tests.crash --help`, and `python -m tests.crash.torture --help` for random schedules.
"""
