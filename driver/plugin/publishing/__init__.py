"""Keeps the node's slices as they should be, in the order that the policy wants."""
