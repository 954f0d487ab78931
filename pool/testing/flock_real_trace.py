"""A trace of many sites, each a pool of real roles on the virtual clock, joined by worlds.

    found = run_virtual(run_real_sites(jobs, machines))

The counterpart of `pool.testing.flock_trace`, which runs the same jobs by the designs' rules alone. Here every match,
claim and start is a message of the real roles, with its delay. Each site is a head node and one machine with as many
slots as the site has machines. A job runs for its seconds and cannot be checkpointed, so no guest has to leave. With
credit it can, and leaves as soon as a job of the machine's pool wants the machine, unless it was let in ahead of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool.policy.flock.ledger import UNIT, CreditTerms
from pool.starter.spec import KeeperSpec
from pool.testing.flock import SimFlock, head
from pool.testing.flock_trace import SiteJob
from pool.testing.keepers import Behaviour

#: Long intervals: days of many pools, in which little happens to most.
SETTINGS = {
    "CLAIM_LEASE": "7200",
    "CLAIM_LEASE_MAX": "7200",
    "UPDATE_INTERVAL": "7200",
    "AD_LIFETIME": "21600",
    "NEGOTIATION_INTERVAL": "300",
    "FLOCK_GUESTS_LEAVE": "false",
}
#: With credit: guests give way to jobs of the machine's pool.
GIVING_WAY = {"FLOCK_GUESTS_LEAVE": "true"}
#: Seconds until it is first checked whether all jobs have ended.
LOOK = 60.0


@dataclass(frozen=True, slots=True)
class RealFigures:
    """One run's figures.

    Attributes:
        total_wait, longest_wait: seconds from a job's submit to its first instruction: of all together, of one.
        by_site: the total wait of each site's own jobs.
        away: jobs that began in another pool.
        unended, twice: jobs that did not end, and of which two copies ran.
        hours: of virtual time. messages: calls that the nodes served.
        largest: with credit, the largest balance of two pools at the end, machine-seconds.
        unequal: pairs of pools whose ledgers differ at the end.
        lent: machine-seconds in all ledgers.
        ahead: claims that were given ahead of own jobs. taken_back: those of them that were taken back.
    """

    total_wait: float
    longest_wait: float
    by_site: Mapping[int, float]
    away: int
    unended: int
    twice: int
    hours: float
    messages: int
    largest: float = 0.0
    unequal: int = 0
    lent: float = 0.0
    ahead: int = 0
    taken_back: int = 0


def _pool(site: int) -> str:
    return f"site{site}"


async def run_real_sites(
    jobs: Sequence[SiteJob],
    machines: Mapping[int, int],
    *,
    lends: Mapping[int, Sequence[int]] | None = None,
    bound: float | None = None,
    seed: int = 1,
) -> RealFigures:
    """Run all jobs; on a virtual clock only.

    Args:
        lends: the sites to which each lends; by default all others.
        bound: with credit, machine-seconds that each two of them may owe each other.
    """
    settings = SETTINGS if bound is None else SETTINGS | GIVING_WAY
    flock = SimFlock([_pool(site) for site in machines], seed, settings=settings)
    runtime: dict[tuple[str, str], float] = {}
    names: dict[str, SiteJob] = {}
    clusters: dict[str, int] = {}

    def behave(pool: str, spec: KeeperSpec) -> Behaviour:
        home = str(spec.claim.get("owner")).partition("@")[2] or pool
        seconds = runtime[home, ".".join(spec.id.split(".")[:2])]
        return Behaviour(seconds, saving=None if bound is None else 0.0)

    pairs = [
        (_pool(site), _pool(other))
        for site in machines
        for other in (machines if lends is None else lends[site])
        if other != site
    ]
    async with flock:
        for lender, borrower in pairs:
            flock.agree(lender=lender, borrower=borrower)
        for site, count in machines.items():
            await _add(flock, _pool(site), count, behave)
        credit = _Credit(flock, pairs, bound) if bound is not None else None
        if credit is not None:
            await credit.agree()
        await flock.settle(60.0)
        began = flock.now() - min(job.submitted for job in jobs)
        for job in jobs:
            if (wait := began + job.submitted - flock.now()) > 0:
                await asyncio.sleep(wait)
            pool = _pool(job.site)
            # The number of the cluster is known before: the program may begin before the answer is here.
            clusters[pool] = number = clusters.get(pool, 0) + 1
            runtime[pool, f"{number}.0"] = job.runtime
            names[f"{pool}:{number}.0"] = job
            assert await flock.submit(pool, owner="user") == number
        end = max(job.submitted + job.runtime for job in jobs) + 30 * 86400.0
        with contextlib.suppress(TimeoutError):
            await flock.run_until(lambda: not flock.queued(), within=end, step=LOOK)
        if credit is not None:
            await flock.settle(2 * float(SETTINGS["CLAIM_LEASE"]))
        away = len({name for name, machine, _ in flock.witness.starts if machine != f"{name.partition(':')[0]}-m0"})
        ends = {name: at for name, _, at in flock.witness.ends}
        waits = {name: ends[name] - began - job.submitted - job.runtime for name, job in names.items() if name in ends}
        by_site: dict[int, float] = dict.fromkeys(machines, 0.0)
        for name, wait in waits.items():
            by_site[names[name].site] += wait
        served = sum(sum(pool.traps.called.values()) for pool in flock.pools.values())
        return RealFigures(
            math.fsum(waits.values()),
            max(waits.values()),
            by_site,
            away,
            flock.queued(),
            len(flock.witness.doubles),
            (flock.now() - began) / 3600.0,
            served,
            **(credit.figures() if credit is not None else {}),
        )


class _Credit:
    """Agreements with credit between all pairs, and what comes of them."""

    def __init__(self, flock: SimFlock, pairs: Sequence[tuple[str, str]], bound: float) -> None:
        self._flock = flock
        self._pairs = sorted({(min(pair), max(pair)) for pair in pairs})
        self._terms = CreditTerms(True, bound)
        self._ahead = self._taken_back = 0

    def _book(self, pool: str) -> Any:
        return self._flock.pool(pool).role(head(pool), "world").credit

    async def agree(self) -> None:
        """Have each pair agree, and count from now on what is given ahead and taken back."""
        for one, other in self._pairs:
            await self._book(one).agree(other, self._terms)
            await self._book(other).agree(one, self._terms)
        for pool in {pool for pair in self._pairs for pool in pair}:
            self._watch(self._book(pool))

    def _watch(self, book: Any) -> None:
        begin, taken_back = book.measures.begin, book.taken_back

        def count_begin(*given: Any, **named: Any) -> None:
            self._ahead += named.get("way") is not None
            begin(*given, **named)

        def count_taken_back(use: Any) -> None:
            self._taken_back += 1
            taken_back(use)

        book.measures.begin, book.taken_back = count_begin, count_taken_back

    def figures(self) -> dict[str, Any]:
        """The last fields of `RealFigures`."""
        largest, unequal, lent = 0.0, 0, 0.0
        for one, other in self._pairs:
            books = (self._book(one), other), (self._book(other), one)
            entries = [
                {signed.entry for signed in book.partners[pool].ledger} if pool in book.partners else set()
                for book, pool in books
            ]
            unequal += entries[0] != entries[1]
            largest = max(largest, *(abs(book.balance(pool)) for book, pool in books))
            lent += sum(abs(entry.amount) for entry in entries[0]) / UNIT
        return {
            "largest": largest,
            "unequal": unequal,
            "lent": lent,
            "ahead": self._ahead,
            "taken_back": self._taken_back,
        }


async def _add(flock: SimFlock, pool: str, slots: int, behave: Any) -> None:
    await flock.add_pool(pool, 1, behave=lambda spec: behave(pool, spec), settings={"SLOTS": str(slots)})


def neighbours(sites: Sequence[int], most: int) -> dict[int, list[int]]:
    """To which sites each lends where not all know each other: 1, 2, 4, 8 ... places further in a ring."""
    return {site: [sites[(place + 2**step) % len(sites)] for step in range(most)] for place, site in enumerate(sites)}
