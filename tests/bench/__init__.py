"""What the plugin costs, beside the least that its work can cost, in the same run."""
