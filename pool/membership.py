"""What a node is in its pool: its lasting identity, its certificate, and how it came in (DESIGN 4).

A node that listens on the network has the pool's trust in its state directory: the first one makes the pool's
certificate authority, every other joins with a token and gets its certificate from there. A node that listens on its unix
socket alone needs neither.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pool.config import Settings
from pool.errors import PoolError
from pool.outside import Outside
from pool.wire import Identity, own_identity

INSTANCE = "instance"


class Membership:
    """One node's place in its pool."""

    def __init__(self, name: str, instance: str, identity: Identity) -> None:
        self.name = name
        self.instance = instance
        self.identity = identity
        self.credentials: Any = None
        self.collector = ""

    @classmethod
    async def open(
        cls, state: Path, name: str, roles: tuple[str, ...], settings: Settings, outside: Outside, join: str | None
    ) -> Membership:
        """What the state directory holds, made where it is missing."""
        return cls(name, _instance(state, outside), own_identity(name, roles))

    def public_address(self, bound: str) -> str:
        """The address others are told."""
        return bound

    async def token(self, params: dict[str, Any]) -> dict[str, Any]:
        """A join token."""
        raise PoolError("this node does not listen on the network", hint="set LISTEN and restart it")

    def close(self) -> None:
        """Nothing is kept open."""


def _instance(state: Path, outside: Outside) -> str:
    path = state / INSTANCE
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        made = outside.secret(8)
        aside = path.with_name(f"{INSTANCE}.{os.getpid()}")
        aside.write_text(made)
        os.replace(aside, path)
        return made
