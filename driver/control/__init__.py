"""Talks to the plugin of this node: what an administrator types, sent through its socket."""
