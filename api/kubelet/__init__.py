"""The kubelet's gRPC interfaces: our own .proto files and the code generated from them.

Package lines, message fields and numbers are the kubelet's; file names are ours, because one
process may not load two files called `api.proto`. `hack/protos.py` generates, and with `--check`
compares. No client or server code is generated: `driver.kubelet` builds its method table from the
descriptors, so the generated code depends on protobuf alone.
"""
