"""The adapter to the Kubernetes API; the only importer of `kubernetes`."""
