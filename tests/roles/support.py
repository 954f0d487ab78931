"""What the tests of roles share: settings that make trouble come and go quickly, and waiting in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pool.client import Pool
from pool.client.addresses import NoPool
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import CannotConnect, Connection

#: Short leases and intervals, so that what takes hours takes minutes; all times are virtual anyway.
QUICK = {"CLAIM_LEASE": "60", "UPDATE_INTERVAL": "30", "AD_LIFETIME": "100", "NEGOTIATION_INTERVAL": "60"}


def lasting(seconds: float, code: int = 0) -> Behaviour:
    """A program that runs so long and exits with a code."""
    return Behaviour(seconds, code)


def told(pool: SimPool, slot: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the collector knows of a slot: its ad, and the private part of it."""
    entry = pool.role("head", "collector")._registry.entries[("Machine", slot)]
    return entry.ad, entry.private or {}


class UsersPool(Pool):
    """A user's tool in a simulated pool, on the host of one of its nodes."""

    def __init__(self, sim: SimPool, user: str, at: str) -> None:
        self._sim, self._user, self._at = sim, user, at
        self._made: dict[str, Connection] = {}

    async def link(self, address: str | None = None) -> Connection:
        host = (address or f"mem://{self._at}").removeprefix("mem://")
        link = self._made.get(host)
        if link is None or link.closed.done():
            try:
                link = self._made[host] = await self._sim.network.user(self._user, host)
            except CannotConnect as error:
                raise NoPool(str(error)) from error
        return link

    async def info(self) -> dict[str, Any]:
        node = self._sim.nodes[self._at]
        return {"node": node.name, "roles": list(node.running), "collector": "mem://head"}

    async def close(self) -> None:
        for link in self._made.values():
            await link.close()


@asynccontextmanager
async def asking(sim: SimPool, user: str = "alice", at: str = "head") -> AsyncIterator[UsersPool]:
    """A user who asks."""
    pool = UsersPool(sim, user, at)
    pool.address = f"mem://{at}"
    try:
        yield pool
    finally:
        await pool.close()
