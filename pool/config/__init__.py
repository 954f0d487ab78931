"""Settings: what an administrator can say about a node, where it was said, and what it is by default (A8).

The users' tools take from here only where a node's state lies (`places`), and start quickly: the rest is imported when
it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.config.kinds import SettingKind
    from pool.config.reading import ConfigError
    from pool.config.settings import Change, ConfigWarning, ExplainedSetting, Settings
    from pool.config.table import TABLE, Setting

__all__ = ["TABLE", "Change", "ConfigError", "ConfigWarning", "ExplainedSetting", "SettingKind", "Setting", "Settings"]

_MODULES = {"SettingKind": "kinds", "ConfigError": "reading", "TABLE": "table", "Setting": "table"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(f"pool.config.{_MODULES.get(name, 'settings')}"), name)
