"""Machines are noisy: how long one example takes says nothing, so no example has a deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tessera", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("tessera")
