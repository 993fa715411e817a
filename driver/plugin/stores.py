"""What the plugin keeps on disk, and the locks that guard it, opened together.

Why it exists: the ledger, the CDI folder and the locks belong to one node and are shared by every
use case. Must not know what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driver.config.settings import PluginSettings
from driver.core.errors import ConfigError
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.turns import Turns
from driver.state.cdi_store import CdiDir
from driver.state.driver_root import DriverTree, Roots
from driver.state.ledger import LedgerDir, OnDamage
from driver.state.named_locks import NamedLocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """`named_locks` are those that `locks` and `turns` are made of."""

    ledger: LedgerDir
    cdi: CdiDir
    driver_root: DriverTree
    named_locks: NamedLocks
    locks: GpuLocks
    turns: Turns


def open_stores(settings: PluginSettings, *, on_damage: OnDamage) -> Stores:
    """ConfigError or StateError names the folder that cannot be used."""
    _own_folder(settings.kubelet_plugins_dir, settings.plugin_dir)
    named_locks = NamedLocks(settings.plugin_dir / "locks")
    return Stores(
        ledger=LedgerDir(settings.plugin_dir / "ledger", settings.node_name, on_damage=on_damage),
        cdi=CdiDir(settings.cdi_dir),
        driver_root=DriverTree(
            Roots(
                root=settings.driver_root,
                host_root=settings.host_driver_root,
                proc=settings.proc_root,
            ),
            container_folders=settings.container_library_dirs,
            required=settings.required_libraries,
        ),
        named_locks=named_locks,
        locks=GpuLocks(named_locks),
        turns=Turns(named_locks),
    )


def _own_folder(plugins: Path, own: Path) -> None:
    """Make our folder below the kubelet's, which must be there: elsewhere nobody would look."""
    if not plugins.is_dir():
        raise ConfigError(
            f"kubelet_plugins_dir {plugins} is not a folder; set it to <kubelet root>/plugins, and"
            " mount it into the pod at the same path"
        )
    try:
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{own} cannot be made: {error.strerror}; the pod needs it mounted writable, as root"
        ) from error
