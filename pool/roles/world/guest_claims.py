"""The claims of other pools on our machines, known from the calls about them that pass through this world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from pool.policy.flock.private import OF


class GuestClaims:
    """The claims of other pools' schedds on our machines.

    Args:
        longest: seconds after which a claim that nobody has renewed is over.
    """

    def __init__(self, longest: Callable[[], float]) -> None:
        self._longest = longest
        self._claims: dict[tuple[str, str, str], tuple[str, float]] = {}

    def add(self, pool: str, schedd: str, startd: str, claims: Iterable[Any]) -> None:
        """Note claims that were made or renewed."""
        until = asyncio.get_running_loop().time() + self._longest()
        for claim in claims:
            self._claims[pool, startd, str(claim)] = (schedd, until)

    def forget(self, pool: str, startd: str, claims: Iterable[Any]) -> None:
        """Drop claims that are over."""
        for claim in claims:
            self._claims.pop((pool, startd, str(claim)), None)

    def count(self) -> int:
        """The number of claims of all pools, without those of users with an account here."""
        self._forget_old()
        return sum(OF not in pool for pool, _, _ in self._claims)

    def _forget_old(self) -> None:
        now = asyncio.get_running_loop().time()
        self._claims = {key: claim for key, claim in self._claims.items() if claim[1] > now}

    def of_pool(self, pool: str) -> list[tuple[str, str, str]]:
        """The schedd, the startd and the id of each claim of a pool."""
        self._forget_old()
        return [(schedd, key[1], key[2]) for key, (schedd, _) in self._claims.items() if key[0] == pool]
