"""The pool's accounts as the dedicated scheduler orders users by them (WR 6.1, A6).

The negotiator charges all use of the pool, that of dedicated jobs included. The scheduler asks it now and then, and
counts on from there with the machine-seconds of its own jobs. Without a negotiator the scheduler's own count serves
alone (`own`): what its jobs had, of which half is forgotten in a day.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pool.errors import PoolError
from pool.policy.dedicated import DedicatedRun
from pool.roles.links import Links
from pool.roles.schedd.core.claims import TROUBLE

#: Seconds between two questions, and within which one is answered.
ASK_EVERY, PATIENCE = 30.0, 10.0
#: An answer serves for so many seconds at most.
LASTS = 600.0
#: Half of a machine-second of the own count is forgotten after so many seconds.
HALF_LIFE = 86400.0
#: Accounts that are read from one answer.
MOST_ACCOUNTS = 100_000


class UserAccounts:
    """The use that users are charged with, in machine-seconds; only differences and ratios matter.

    Args:
        collector: its address.
        account_of: the name of a user's account in the pool.
        asks: whether the order of users matters now.
        changed: called when an answer has come.
    """

    def __init__(
        self,
        links: Links,
        collector: str,
        account_of: Callable[[str], str],
        asks: Callable[[], bool],
        changed: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._links = links
        self._collector = collector
        self._account_of = account_of
        self._asks = asks
        self._changed = changed
        self._log = log
        self._own: dict[str, float] = {}
        self._counted: float | None = None
        self._pool: dict[str, float] = {}
        #: The own count when the pool's accounts were asked for: only what came since is added to them.
        self._then: dict[str, float] = {}
        self._answered: float | None = None

    @property
    def by_pool(self) -> bool:
        """Whether the pool's accounts count now."""
        answered = self._answered
        return answered is not None and asyncio.get_running_loop().time() - answered < LASTS

    def count(self, runs: Iterable[DedicatedRun], now: float) -> None:
        """Charge users with the time since the last call, for the machines of these jobs.

        Args:
            now: wall time.
        """
        passed = max(0.0, now - self._counted) if self._counted is not None else 0.0
        self._counted = now
        kept = 0.5 ** (passed / HALF_LIFE)
        for counts in (self._own, self._then):
            for user in counts:
                counts[user] *= kept
        for run in runs:
            size = sum(len(share.machines) for share in run.shares)
            self._own[run.job.user] = self._own.get(run.job.user, 0.0) + size * passed

    def used(self, user: str) -> float:
        """The use that a user is charged with now."""
        own = self._own.get(user, 0.0)
        if not self.by_pool:
            return own
        known = self._pool.get(self._account_of(user))
        newcomer = min(self._pool.values(), default=0.0)
        return (newcomer if known is None else known) + max(0.0, own - self._then.get(user, 0.0))

    async def run(self) -> None:
        """Ask the negotiator while the order matters, until cancelled."""
        while True:
            if self._asks():
                try:
                    async with asyncio.timeout(PATIENCE):
                        answer = await self._query_negotiator()
                except (*TROUBLE, PoolError) as error:
                    self._log.info("the pool's accounts are not to be had", extra={"why": str(error)})
                else:
                    self.update(answer)
                    self._changed()
            await asyncio.sleep(ASK_EVERY)

    async def _query_negotiator(self) -> Mapping[str, float]:
        link = await self._links.connect(self._collector)
        address = ""
        async with await link.stream("collector.query", {"type": "Negotiator"}) as found:
            async for ads in found:
                address = next((_address(ad) for ad in ads), address)
        if not address:
            raise PoolError("the collector knows no negotiator", hint="start one", retry=True)
        return read_accounts(await self._links.call(address, "negotiator.priorities", {}, timeout=PATIENCE))

    def update(self, accounts: Mapping[str, float]) -> None:
        """Take in the machine-seconds of each account."""
        least = min([0.0, *accounts.values()])
        self._pool = {name: used - least for name, used in accounts.items()}
        self._then = dict(self._own)
        self._answered = asyncio.get_running_loop().time()


def read_accounts(answer: Any) -> dict[str, float]:
    """The charge of each account by an answer of `negotiator.priorities`.

    Raises:
        PoolError: it is no such answer.
    """
    rows = answer.get("accounts") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise PoolError("the negotiator's answer about accounts is not understood", retry=True)
    found: dict[str, float] = {}
    for row in rows[:MOST_ACCOUNTS]:
        name, charged = (row.get("name"), row.get("charged")) if isinstance(row, dict) else (None, None)
        if isinstance(name, str) and isinstance(charged, int | float) and math.isfinite(charged):
            found[name] = float(charged)
    return found


def _address(ad: Any) -> str:
    found = ad.get("NegotiatorAddress") if isinstance(ad, dict) else None
    return found if isinstance(found, str) else ""
