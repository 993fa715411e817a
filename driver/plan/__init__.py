"""`tessera plan`: what the nodes of a cluster still hold, and whose end would make room."""
