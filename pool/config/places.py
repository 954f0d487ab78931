"""Where a user's own node keeps its state. Nothing is read or made here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

SYSTEM_STATE = Path("/var/lib/poolnode")


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
