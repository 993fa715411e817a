"""`tessera simulate`: what a policy would do on some board, some mix and some load."""
