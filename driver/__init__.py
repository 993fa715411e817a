"""Tessera's processes: the node plugin today; controller, webhook and preflight follow.

Layers, from the top: cli -> plugin -> nvml | kube | kubelet | state | observe | config -> ports ->
core -> api. import-linter holds the direction; docs/architecture.md draws it.
"""
