"""Settings: what an administrator can say about a node, where it was said, and what it is by default (A8)."""

from pool.config.settings import ConfigError, Settings, Warning_
from pool.config.table import TABLE, Kind, Setting

__all__ = ["TABLE", "ConfigError", "Kind", "Setting", "Settings", "Warning_"]
