"""Helpers for the tests of roles: settings that make trouble come and go quickly, and waiting in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pool.client import Pool
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool

#: Short leases and intervals, so that what takes hours takes minutes; all times are virtual anyway.
QUICK = {"CLAIM_LEASE": "60", "UPDATE_INTERVAL": "30", "AD_LIFETIME": "100", "NEGOTIATION_INTERVAL": "60"}


def lasting(seconds: float, code: int = 0) -> Behaviour:
    """A program that runs so long and exits with a code."""
    return Behaviour(seconds, code)


def told(pool: SimPool, slot: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The collector's knowledge of a slot: its ad, and the private part of it."""
    entry = pool.role("head", "collector")._registry.entries[("Machine", slot)]
    return entry.ad, entry.private or {}


@asynccontextmanager
async def asking(
    sim: SimPool, user: str = "alice", at: str = "head", *, administer: bool = False
) -> AsyncIterator[Pool]:
    """A user who asks."""
    async with await sim.connect(user, at, administer=administer) as pool:
        yield pool
