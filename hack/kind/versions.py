"""Every version that the test cluster pins, in one place.

Why it exists: the same number appears in linker flags, image tags and kubeadm's configuration;
a mismatch between them shows only as a node that never becomes Ready.

Must not know: how anything is built or run. Go module versions are pinned by `go/*/go.mod`; what
stands here is what cannot be read from there.
"""

from typing import Final

KUBERNETES: Final = "v1.37.2"
CONTAINERD: Final = "v2.4.2"
KIND: Final = "v0.33.0"
# Used only where an engine can pull; kind v0.33.0 was released and tested with this digest.
OFFICIAL_NODE_IMAGE: Final = (
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
)
DEBIAN_SUITE: Final = "bookworm"
CLUSTER: Final = "tessera"
POD_SUBNET: Final = "10.244.0.0/16"
