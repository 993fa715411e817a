"""What use cases ask of adapters: Protocols and the values that cross them, nothing that runs."""
