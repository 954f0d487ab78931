"""A trace of many sites, each a pool of real roles on the virtual clock, joined by worlds.

    found = run_virtual(run_real_sites(jobs, machines))

The counterpart of `pool.testing.flock_trace`, which runs the same jobs by the designs' rules alone. Here every match,
claim and start is a message of the real roles, with its delay. Each site is a head node and one machine with as many
slots as the site has machines. A job runs for its seconds and cannot be checkpointed, so no guest has to leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool.starter.spec import KeeperSpec
from pool.testing.flock import SimFlock
from pool.testing.flock_trace import SiteJob
from pool.testing.keepers import Behaviour

#: Long intervals: days of many pools, in which little happens to most.
SETTINGS = {
    "CLAIM_LEASE": "7200",
    "CLAIM_LEASE_MAX": "7200",
    "UPDATE_INTERVAL": "7200",
    "AD_LIFETIME": "21600",
    "NEGOTIATION_INTERVAL": "300",
}
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
    """

    total_wait: float
    longest_wait: float
    by_site: Mapping[int, float]
    away: int
    unended: int
    twice: int
    hours: float
    messages: int


def _pool(site: int) -> str:
    return f"site{site}"


async def run_real_sites(
    jobs: Sequence[SiteJob],
    machines: Mapping[int, int],
    *,
    lends: Mapping[int, Sequence[int]] | None = None,
    seed: int = 1,
) -> RealFigures:
    """Run all jobs; on a virtual clock only.

    Args:
        lends: the sites to which each lends; by default all others.
    """
    flock = SimFlock([_pool(site) for site in machines], seed, settings=SETTINGS)
    runtime: dict[tuple[str, str], float] = {}
    names: dict[str, SiteJob] = {}
    clusters: dict[str, int] = {}

    def behave(pool: str, spec: KeeperSpec) -> Behaviour:
        home = str(spec.claim.get("owner")).partition("@")[2] or pool
        return Behaviour(runtime[home, ".".join(spec.id.split(".")[:2])])

    async with flock:
        for site in machines:
            for other in machines if lends is None else lends[site]:
                if other != site:
                    flock.agree(lender=_pool(site), borrower=_pool(other))
        for site, count in machines.items():
            await _add(flock, _pool(site), count, behave)
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
        waits: dict[str, float] = {}
        away = 0
        for name, machine, at in flock.witness.starts:
            if name not in waits:
                waits[name] = at - began - names[name].submitted
                away += machine != f"{name.partition(':')[0]}-m0"
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
        )


async def _add(flock: SimFlock, pool: str, slots: int, behave: Any) -> None:
    await flock.add_pool(pool, 1, behave=lambda spec: behave(pool, spec), settings={"SLOTS": str(slots)})


def neighbours(sites: Sequence[int], most: int) -> dict[int, list[int]]:
    """To which sites each lends where not all know each other: 1, 2, 4, 8 ... places further in a ring."""
    return {site: [sites[(place + 2**step) % len(sites)] for step in range(most)] for place, site in enumerate(sites)}
