"""What an administrator asks of the plugin on its node, over a socket of root's."""
