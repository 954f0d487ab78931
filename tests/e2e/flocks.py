"""Pools that lend to each other, for the tests: their roles, and their agreement."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.support import Node, administrator

HEAD = "collector,negotiator,schedd,world"
BOTH = "collector,negotiator,schedd,startd,world"


async def agree(lender: Node, borrower: Node, names: tuple[str, str]) -> None:
    """The borrower's jobs may run on the lender's machines."""
    async with administrator(lender) as pool:
        made = await pool.call("node.token", {"roles": ["flock"], "node": names[1], "lifetime": 600, "uses": 1})
    async with administrator(borrower) as pool:
        await pool.call("world.accept", {"pool": names[0], "token": made["token"]})


def lines_of(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
