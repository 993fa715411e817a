"""The plugin's files: what it stores, and what it reads of the driver, the kernel and /dev."""
