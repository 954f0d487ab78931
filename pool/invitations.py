"""Agreements with other pools, as the node with the pool's authority knows them: their names and invitations.

Another pool has a certificate of this pool's authority with the role `flock`, which gives it the methods of the world
for other pools, and nothing else. Its name is none of this pool's machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pool.enrolment import Enrolment
from pool.wire.identity import PEER_POOL


class Invitations:
    """The questions of a world to its node (`pool.roles.base.PoolInvitations`).

    Args:
        open_pool: lets others join.
        address: of this node, once others can join.
        revoke: puts a name out of the pool at once.
    """

    def __init__(
        self,
        enrolment: Callable[[], Enrolment],
        open_pool: Callable[[], Awaitable[None]],
        address: Callable[[], str],
        revoke: Callable[[str], Awaitable[None]],
    ) -> None:
        self._enrolment = enrolment
        self._open_pool = open_pool
        self._address = address
        self._revoke = revoke

    @property
    def fingerprint(self) -> str:
        """Of this pool's authority; empty where this node does not have it."""
        return self._enrolment().fingerprint

    @property
    def pools(self) -> list[str]:
        """The other pools that have taken an invitation."""
        return self._enrolment().pools()

    async def invite(self, pool: str, lifetime: float) -> dict[str, Any]:
        """A token for another pool: {token, expires: wall seconds}. Raises PoolError."""
        await self._open_pool()
        asked = {"roles": [PEER_POOL], "node": pool, "lifetime": lifetime, "uses": 1}
        return self._enrolment().token(self._address(), asked, "")

    async def renew(self, pool: str, request: str) -> str:
        """A new certificate for another pool's own key. Raises PoolError."""
        return await asyncio.to_thread(self._enrolment().sign_anew, request, pool, [PEER_POOL])

    async def withdraw(self, pool: str) -> bool:
        """Make another pool's certificate and its unused tokens worthless; whether there were any."""
        enrolment = self._enrolment()
        tokens = await asyncio.to_thread(enrolment.withdraw_invitations, pool)
        if pool not in enrolment.pools():
            return tokens > 0
        await self._revoke(pool)
        return True
