"""Pytest's way to the fake API server of hack/fakeapi."""
