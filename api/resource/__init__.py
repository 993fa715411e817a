"""The part of resource.k8s.io that Tessera reads and writes, as values and as JSON."""
