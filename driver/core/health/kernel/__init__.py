"""What the kernel's log says of GPUs: records, messages, and what they mean."""
