"""The node plugin: use cases that join NVML, the API server and the kubelet.

A claim's way: `driver.kubelet` (socket) -> `claims.py` -> `core.claims` (intent) -> `core.ledger`
(entry) -> `core.cdi` (spec) -> `driver.state` (files) -> answer.
A GPU's way: `driver.nvml` -> `discover.py` -> `core.inventory` -> `core.pools` -> `core.diff` ->
`publish.py` -> API server.
"""
