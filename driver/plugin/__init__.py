"""The node plugin: use cases that join NVML, the API server and the kubelet.

A claim's way: `driver.kubelet` (socket) -> `preparing` -> `core.claims` (intent) -> `core.ledger`
(entry) -> `core.cdi` (spec) -> `driver.state` (files) -> answer.
A GPU's way: `driver.nvml` -> `discover.py` -> `core.inventory` -> `core.pools` -> `core.diff` ->
`publishing` -> API server.
A fault's way: sources (`driver.nvml`, `driver.state`, `driver.cuda`) -> `core.health` (evidence,
judgement) -> `health` -> taints, kubelet's stream, node condition, refusals.
After a crash: `recovering`. What an administrator asks: `control`.
"""
