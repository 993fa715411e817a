"""What a look at a GPU found, and what it says about its health."""
