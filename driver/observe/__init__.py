"""What others see of the process: log lines, metrics, health."""
