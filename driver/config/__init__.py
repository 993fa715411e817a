"""What an administrator sets: defaults, a YAML file, environment variables and flags."""
