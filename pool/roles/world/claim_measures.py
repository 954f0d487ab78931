"""This world's own measurements of claims, by the calls about them that pass between the pools (EV 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from pool.outside import OutsideWorld
from pool.policy.flock.ledger import ClaimUse, CreditTerms, claim_digest
from pool.policy.flock.value import value_in_ledger
from pool.roles.world.ledger_disk import LedgerDisk, use_row

Wire = dict[str, Any]
#: Seconds for which a borrower keeps the measurement of a claim that has ended and was not signed.
KEPT = 30 * 86400.0


class ClaimMeasures:
    """The use of each claim between this pool and others.

    Args:
        terms: those that hold with a pool.
        counts: whether credit with a pool is wanted, or was: only then its claims are kept on disk and proposed.

    Attributes:
        uses: by pool, whether the machine is ours, and the claim.
        ended: set when a claim has ended that counts.
        ahead: set when a claim was given ahead of our own jobs.
    """

    def __init__(
        self,
        disk: LedgerDisk,
        outside: OutsideWorld,
        *,
        terms: Callable[[str], CreditTerms],
        counts: Callable[[str], bool],
    ) -> None:
        self._disk = disk
        self._outside = outside
        self._terms = terms
        self._counts = counts
        self._began = self.now()
        self.uses: dict[tuple[str, bool, str], ClaimUse] = {}
        self.ended = asyncio.Event()
        self.ahead = asyncio.Event()

    def find(self, pool: str, startd: str, claim: object, *, lends: bool) -> ClaimUse | None:
        """The measurement of a claim, by its id."""
        return self.uses.get((pool, lends, claim_digest(startd, str(claim))))

    def of_pool(self, pool: str) -> list[ClaimUse]:
        return [use for use in self.uses.values() if use.pool == pool]

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def begin(
        self,
        pool: str,
        startd: str,
        made: Wire,
        *,
        lends: bool,
        user: str,
        lease: float,
        way: tuple[str, str, str] | None = None,
    ) -> None:
        """A claim was made: {claim, slot, ad} as its startd said. Without an agreement with credit it is known, too: it
        may outlive the day on which one is made, and counts from then on.

        Args:
            way: of a machine that was given ahead of our own jobs: the schedd, the startd and the claim's id.
        """
        claim = claim_digest(startd, str(made.get("claim")))
        value = value_in_ledger(made.get("ad"))
        use = ClaimUse(
            pool, claim, lends, str(made.get("slot")), user, value, lease, way=way, by_credit=way is not None
        )
        use.confirmed = not lends
        use.seen, use.seen_wall = self.now(), self._outside.wall()
        self.uses[pool, lends, claim] = use
        self.changed(use)
        if way is not None:
            self.ahead.set()

    def called(self, pool: str, startd: str, verb: str, params: Wire, answer: Any, *, lends: bool) -> None:
        """A call about claims has passed, either way: {claim} or {claims}, and the answer to it."""
        claims = params["claims"] if isinstance(params.get("claims"), list) else [params.get("claim")]
        gone = answer.get("gone") if verb == "renew" and isinstance(answer, dict) else None
        left = verb == "ended" and isinstance(answer, dict) and answer.get("keep") is False  # its startd frees it now
        ended = claims if left or verb in ("release", "revoked") else gone if isinstance(gone, list) else []
        self.over(pool, startd, ended, lends=lends)
        alive = [claim for claim in claims if claim not in ended]
        if lends and verb == "renew":
            self._open_again(pool, startd, alive)
        self.seen(pool, startd, alive, lends=lends)

    def _open_again(self, pool: str, startd: str, claims: Iterable[Any]) -> None:
        """Our startd says that these claims live."""
        for claim in claims:
            use = self.find(pool, startd, claim, lends=True)
            if use is not None and use.closed:
                use.closed = False

    def seen(self, pool: str, startd: str, claims: Iterable[Any], *, lends: bool) -> None:
        """Calls about these claims have passed."""
        for claim in claims:
            use = self.find(pool, startd, claim, lends=lends)
            if use is not None and not use.closed:
                first = not use.confirmed or use.seen is None
                self.measure(use)
                use.confirmed = True
                if first:
                    self.changed(use)

    def over(self, pool: str, startd: str, claims: Iterable[Any], *, lends: bool) -> None:
        """These claims have ended."""
        for claim in claims:
            use = self.find(pool, startd, claim, lends=lends)
            if use is not None and not use.closed:
                self.measure(use)
                self._close(use)

    def measure(self, use: ClaimUse) -> None:
        """A claim is alive: count its time until now."""
        use.see(self.now(), self._outside.wall(), credit=self._terms(use.pool).credit)

    def terms_change(self, pool: str | None = None) -> None:
        """The terms with a pool, or all, are about to change: what was used until now was used under the present."""
        for use in self.uses.values() if pool is None else self.of_pool(pool):
            use.terms_change(self.now(), self._outside.wall(), credit=self._terms(use.pool).credit)
        self.ahead.set()  # with credit, own jobs are to be known

    async def write(self) -> None:
        """Return when all measurements are on disk, or cannot be written: then machines are lent all the same, and
        what a crash loses of them is not counted."""
        await self._disk.try_save()

    def changed(self, use: ClaimUse) -> None:
        """Keep a measurement."""
        if self._counts(use.pool):
            self._disk.put_soon([use_row(use)])

    def rows(self) -> list[Any]:
        """All measurements that are kept, for the disk."""
        return [use_row(use) for use in self.uses.values() if self._counts(use.pool)]

    def sweep(self) -> None:
        """Close claims that nobody renews any more, and forget those for which nobody will ask."""
        now, wall = self.now(), self._outside.wall()
        for use in list(self.uses.values()):
            # Of an earlier run only the time of day is known, and the clock may have been set back since.
            silent = now - use.seen if use.seen is not None else max(wall - use.seen_wall, now - self._began)
            if not use.closed and silent > 2 * use.lease:
                self._close(use)
            elif use.closed and not use.lends and silent > KEPT:
                self._drop(use)
        self._disk.add_rows(use_row(use) for use in self.uses.values() if not use.closed and self._counts(use.pool))

    def _close(self, use: ClaimUse) -> None:
        use.closed, use.agreed = True, None  # the borrower is asked for the whole once more
        if not self._counts(use.pool):
            self.uses.pop((use.pool, use.lends, use.claim), None)
        elif use.lends and not use.confirmed:
            self._drop(use)  # no schedd of the other pool has ever known of it
        else:
            self.changed(use)
            self.ended.set()

    def _drop(self, use: ClaimUse) -> None:
        self.uses.pop((use.pool, use.lends, use.claim), None)
        self._disk.put_soon([use_row(use, gone=True)])
