"""What an administrator chose for a node, as the core needs it; `driver.config` reads it."""

from __future__ import annotations

from dataclasses import dataclass

from driver.core.boards import Binding
from driver.core.modes import Rule
from driver.core.packing import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """`profiles`: the allow-list, None for the default. `follow`: renew the order after each
    allocation; False publishes the static order only. `lean`: few attributes on partitions.
    """

    rules: tuple[Rule, ...] = ()
    profiles: tuple[str, ...] | None = None
    policy: Policy = Policy.PACKED
    follow: bool = True
    lean: bool = True
    min_whole_gpus: int = 0
    binding: Binding = Binding.SCHEDULER


DEFAULT = Choices()
