"""Where a node's configuration is looked for, and where a user's own node keeps its state. Nothing is read or made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

SYSTEM_STATE = Path("/var/lib/poolnode")
SYSTEM_CONFIG = Path("/etc/poolnode")
CONFIG = "pool.conf"
#: Directories of a node's state that no job may look into.
PRIVATE = ("spool", "keepers", "trust")


def state_directory(environ: Mapping[str, str], uid: int, exists: Callable[[Path], bool] = Path.exists) -> Path:
    """The directory in which this user's own node keeps its state.

    `$POOLNODE_STATE`; for root `/var/lib/poolnode` when it is there; `$XDG_STATE_HOME/poolnode`;
    `~/.local/state/poolnode`.
    """
    if environ.get("POOLNODE_STATE"):
        return Path(environ["POOLNODE_STATE"])
    if uid == 0 and exists(SYSTEM_STATE):
        return SYSTEM_STATE
    if environ.get("XDG_STATE_HOME"):
        return Path(environ["XDG_STATE_HOME"]) / "poolnode"
    home = environ.get("HOME") or os.path.expanduser("~")
    return Path(home) / ".local" / "state" / "poolnode"


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """Where a pool-wide configuration file is looked for, in this order; the first that is there is read.

    `$XDG_CONFIG_HOME/poolnode/pool.conf` or `~/.config/poolnode/pool.conf`, then `/etc/poolnode/pool.conf`.
    """
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    own = [Path(home) / "poolnode" / CONFIG] if home else []
    return [*own, SYSTEM_CONFIG / CONFIG]
