"""Stores whose disk is taken to be quick or slow, whatever it is: a commit is made on the loop or in the thread."""

from __future__ import annotations

import itertools
from pathlib import Path

from pool.store import Store

WAYS = ("loop", "thread", "inline")


def opened(path: str | Path, how: str) -> Store:
    """A store that commits on the loop after its first write, in its thread, or in the caller."""
    if how == "inline":
        return Store.open(str(path), inline=True)
    return Store.open(str(path), ticks=(lambda: 0.0) if how == "loop" else itertools.count(0.0).__next__)
