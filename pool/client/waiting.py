"""Waiting for jobs: for all of some, for so many of them, or for each as it ends. It follows events and never polls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pool.client.results import NEEDS, Result, read_result
from pool.client.tally import HELD, OVER, JobId, Tally
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

Ids = Sequence[Sequence[int]]
Progress = Callable[[Tally], None]


async def wait_for(
    pool: Pool,
    ids: Ids,
    known: Iterable[JobId] | Mapping[JobId, int] | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
    until_stuck: bool = False,
    count: int | None = None,
) -> list[Result]:
    """The results of jobs, once all of them have left the queue; see `Cluster.wait`.

    Args:
        ids: (cluster,) and (cluster, process) of the jobs.
        known: the jobs that `ids` stand for, where the caller knows (and their states if they are not idle);
            otherwise the schedd is asked.
        count: once so many have left the queue; the results are of those that have.

    Raises:
        PoolError: there are no such jobs.
        TimeoutError: `timeout` seconds have passed.
    """

    def finished(tally: Tally) -> bool:
        enough = count is not None and tally.ended >= count
        return tally.all_ended or enough or (until_stuck and tally.only_held)

    async with asyncio.timeout(timeout):
        moves = follow(pool, ids, known)
        try:
            async for tally, moved in moves:
                if progress is not None and moved:
                    progress(tally)
                if moved and finished(tally):
                    chosen = ids if count is None else [job for job, state in tally.states.items() if state in OVER]
                    results = await final_results(pool, chosen, tally)
                    if finished(tally):
                        return results if count is None else [result for result in results if result.is_over]
        finally:
            await moves.aclose()
    raise AssertionError("unreachable: the event stream has no end")


async def as_completed(pool: Pool, ids: Ids, timeout: float | None = None) -> AsyncIterator[Result]:
    """Each job's result, in the order in which they leave the queue.

    Raises:
        PoolError: there are no such jobs.
        TimeoutError: `timeout` seconds have passed since the first was asked for.
    """
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    reported: set[JobId] = set()
    moves = follow(pool, ids)
    try:
        while True:
            async with asyncio.timeout_at(deadline):
                tally, moved = await anext(moves)
                over = [job for job in moved - reported if tally.states[job] in OVER]
                results = await final_results(pool, sorted(over), tally) if over else []
            for result in results:
                if result.is_over:
                    reported.add((result.cluster, result.proc))
                    yield result
            if len(reported) == tally.total:
                return
    finally:
        await moves.aclose()


async def follow(
    pool: Pool, ids: Ids, known: Iterable[JobId] | Mapping[JobId, int] | None = None
) -> AsyncGenerator[tuple[Tally, set[JobId]], None]:
    """The states of jobs, and after that each change with the jobs that it changed, without end.

    Raises:
        PoolError: there are no such jobs, or the schedd cannot be followed.
    """
    tally = None if known is None else Tally(known)
    heard = False
    if tally is not None:
        yield tally, set(tally.states)
    async with aclosing(pool.events(ids=ids, after=None if tally is None else 0)) as batches:
        async for batch in batches:
            moved: set[JobId] = set()
            if tally is None or not (heard or batch):  # a cluster of which there are no events was forgotten meanwhile
                tally = await _query_jobs(pool, ids, tally)
                moved = set(tally.states)
            heard = True
            for event in batch:
                cluster, proc = event["cluster"], event["proc"]
                if tally.apply((cluster, proc), event["kind"]) is None:
                    continue
                moved |= {(cluster, proc)} if proc >= 0 else {job for job in tally.states if job[0] == cluster}
            if moved:
                yield tally, moved


async def _query_jobs(pool: Pool, ids: Ids, tally: Tally | None) -> Tally:
    """The jobs and their states from the schedd."""
    ads = await pool.find(ids, ("ClusterId", "ProcId", "JobStatus"), patient=True)
    found: dict[JobId, int] = {(ad["ClusterId"], ad["ProcId"]): ad["JobStatus"] for ad in ads}
    clusters = {job[0] for job in found}
    for one in ids:
        if (one[0] not in clusters) if len(one) == 1 else ((one[0], one[1]) not in found):
            raise PoolError(f"there is no job {'.'.join(map(str, one))}", hint="`poolnode q` and `history` list them")
    if tally is None:
        return Tally(found)
    for job, state in found.items():
        if job in tally.states:
            tally.set(job, state)
    return tally


async def final_results(pool: Pool, ids: Ids, tally: Tally) -> list[Result]:
    """The results of followed jobs.

    An event may be seen before the ad that goes with it. So jobs that the tally counts as over are queried again a few
    times; then the ads have the last word (a job that exited may be in the queue again).
    """
    ads: list[dict[str, Any]] = []
    for pause in (0.02, 0.1, 0.4, 1.0, 0.0):
        found = await pool.find(ids, NEEDS, patient=True)
        ads = [ad for ad in found if (ad["ClusterId"], ad["ProcId"]) in tally.states]
        if all(ad["JobStatus"] in (*OVER, HELD) for ad in ads):
            break
        await asyncio.sleep(pause)
    for ad in ads:
        tally.set((ad["ClusterId"], ad["ProcId"]), ad["JobStatus"])
    return [read_result(ad) for ad in ads]
