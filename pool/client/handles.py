"""Handles on what was submitted: a cluster and a job of it.

A handle is a pool and an id, nothing more: it is cheap, it can be made for jobs submitted yesterday, and it
never goes stale. Waiting follows the event stream; it never polls.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pool.client.results import NEEDS, Result, read_result
from pool.client.tally import HELD, OVER, JobId, Tally
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.classad import ClassAd
    from pool.client.pool import Acted, Pool
    from pool.jobs.events import JobEvent

Progress = Callable[[Tally], None]


class _Chosen(ABC):
    """What clusters and jobs have in common."""

    pool: Pool

    @property
    @abstractmethod
    def _ids(self) -> list[tuple[int, ...]]:
        """What they are named by."""

    async def events(self, after: int = 0) -> AsyncIterator[JobEvent]:
        """The events of these jobs from the first on, as they happen, without end."""
        from pool.jobs.events import JobEvent

        async for batch in self.pool.events(cluster=self._ids[0][0], ids=self._ids, after=after):
            for event in batch:
                try:
                    yield JobEvent.from_wire(event)
                except ValueError:
                    continue  # of a kind that only a newer schedd knows

    async def remove(self, reason: str = "", *, force: bool = False, checkpoint: bool = False) -> Acted:
        """Takes the jobs out of the queue; running ones are stopped first, and saved if their checkpoint is kept."""
        return await self.pool.act("remove", ids=self._ids, reason=reason, force=force, checkpoint=checkpoint)

    async def hold(self, reason: str = "") -> Acted:
        """Keeps the jobs in the queue without running them."""
        return await self.pool.act("hold", ids=self._ids, reason=reason)

    async def release(self, reason: str = "") -> Acted:
        """Lets held jobs run again."""
        return await self.pool.act("release", ids=self._ids, reason=reason)

    async def vacate(self, *, fast: bool = False) -> Acted:
        """Takes running jobs off their machines; they go back to the queue."""
        return await self.pool.act("vacate", ids=self._ids, force=fast)

    async def checkpoint(self) -> Acted:
        """Has running jobs saved now; each is at home when this returns."""
        return await self.pool.act("checkpoint", ids=self._ids)

    async def prio(self, value: int) -> Acted:
        """Sets the jobs' priority among their owner's own jobs; higher goes first."""
        return await self.pool.act("prio", ids=self._ids, value=value)


class Cluster(_Chosen):
    """The jobs of one submit.

    Attributes:
        cluster: its number.
        count: how many jobs it was submitted with, None when the handle was made from the number alone.
    """

    def __init__(self, pool: Pool, cluster: int, count: int | None = None) -> None:
        self.pool = pool
        self.cluster = cluster
        self.count = count

    def __repr__(self) -> str:
        return f"<Cluster {self.cluster}>"

    def __getitem__(self, proc: int) -> Job:
        return Job(self.pool, self.cluster, proc)

    @property
    def _ids(self) -> list[tuple[int, ...]]:
        return [(self.cluster,)]

    @property
    def jobs(self) -> list[Job]:
        """A handle on each job, where it is known how many there are."""
        return [Job(self.pool, self.cluster, proc) for proc in range(self.count or 0)]

    async def ads(self, attributes: Sequence[str] | None = None) -> list[ClassAd]:
        """The jobs' ads, wherever they are now."""
        from pool.classad import ClassAd

        return [ClassAd.from_wire(ad) for ad in await self.pool.find(self._ids, attributes)]

    async def results(self) -> list[Result]:
        """How each job stands, ended or not."""
        return [read_result(ad) for ad in await self.pool.find(self._ids, NEEDS)]

    async def wait(
        self, timeout: float | None = None, *, progress: Progress | None = None, until_stuck: bool = False
    ) -> list[Result]:
        """Waits until every job has left the queue, and returns their results in the order of their ids.

        Args:
            timeout: seconds; TimeoutError is raised after that.
            progress: called with the tally at each change.
            until_stuck: also return when everything that is left is held.
        """
        known = None if self.count is None else [(self.cluster, proc) for proc in range(self.count)]
        return await wait_for(self.pool, self._ids, known, timeout, progress, until_stuck)


class Job(_Chosen):
    """One job: `cluster.proc`."""

    def __init__(self, pool: Pool, cluster: int, proc: int) -> None:
        self.pool = pool
        self.cluster = cluster
        self.proc = proc

    def __repr__(self) -> str:
        return f"<Job {self.cluster}.{self.proc}>"

    @property
    def _ids(self) -> list[tuple[int, ...]]:
        return [(self.cluster, self.proc)]

    async def ad(self, attributes: Sequence[str] | None = None) -> ClassAd:
        """The job's ad, from the queue or from the history.

        Raises:
            PoolError: there is no such job.
        """
        from pool.classad import ClassAd

        return ClassAd.from_wire(await self._find(attributes))

    async def result(self) -> Result:
        """How the job stands now.

        Raises:
            PoolError: there is no such job.
        """
        return read_result(await self._find(NEEDS))

    async def wait(self, timeout: float | None = None) -> Result:
        """Waits until the job has left the queue. TimeoutError after `timeout` seconds."""
        return (await wait_for(self.pool, self._ids, None, timeout))[0]

    async def tail(self, file: str = "out", *, offset: int = 0, follow: bool = True) -> AsyncIterator[bytes]:
        """The job's output as it grows, until the job has ended. `file` is out or err."""
        async for piece in self.pool.tail(self.cluster, self.proc, file=file, offset=offset, follow=follow):
            yield piece

    async def _find(self, attributes: Sequence[str] | None) -> dict[str, Any]:
        found = await self.pool.find(self._ids, attributes)
        if not found:
            raise PoolError(
                f"there is no job {self.cluster}.{self.proc}", hint="`poolnode q` and `history` list them"
            )
        return found[0]


async def wait_for(
    pool: Pool,
    ids: Sequence[Sequence[int]],
    known: Iterable[JobId] | Mapping[JobId, int] | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
    until_stuck: bool = False,
) -> list[Result]:
    """Follows jobs until all have left the queue; see `Cluster.wait`.

    Args:
        known: the jobs that `ids` stand for, where the caller knows (and their states if they are not idle);
            otherwise the schedd is asked.

    Raises:
        PoolError: there are no such jobs.
        TimeoutError: `timeout` seconds have passed.
    """

    def finished(tally: Tally) -> bool:
        return tally.done or (until_stuck and tally.stuck)

    async with asyncio.timeout(timeout):
        if known is None:
            ads = await pool.find(ids, ("ClusterId", "ProcId", "JobStatus"))
            known = {(ad["ClusterId"], ad["ProcId"]): ad["JobStatus"] for ad in ads}
            if not known:
                wanted = ", ".join(".".join(map(str, job)) for job in ids)
                raise PoolError(f"there is no job {wanted}", hint="`poolnode q` and `history` list them")
        tally = Tally(known)
        if progress is not None:
            progress(tally)
        if finished(tally):
            return await _results(pool, ids, tally)
        only = {job[0] for job in ids}
        async for batch in pool.events(cluster=only.pop() if len(only) == 1 else None, ids=ids):
            moved = False
            for event in batch:
                moved = tally.apply((event["cluster"], event["proc"]), event["kind"]) is not None or moved
            if moved and progress is not None:
                progress(tally)
            if moved and finished(tally):
                results = await _results(pool, ids, tally)
                if finished(tally):
                    return results
    raise AssertionError("unreachable: the event stream has no end")


async def _results(pool: Pool, ids: Sequence[Sequence[int]], tally: Tally) -> list[Result]:
    """The results of followed jobs.

    An event may be seen before the ad that goes with it. So what the tally thinks over is asked again a few
    times; then the ads have the last word (a job that exited may have been put back into the queue).
    """
    ads: list[dict[str, Any]] = []
    for pause in (0.02, 0.1, 0.4, 1.0, 0.0):
        ads = [ad for ad in await pool.find(ids, NEEDS) if (ad["ClusterId"], ad["ProcId"]) in tally.states]
        if all(_settled(ad) for ad in ads):
            break
        await asyncio.sleep(pause)
    for ad in ads:
        tally.set((ad["ClusterId"], ad["ProcId"]), ad["JobStatus"])
    return [read_result(ad) for ad in ads]


def _settled(ad: dict[str, Any]) -> bool:
    return ad["JobStatus"] in (*OVER, HELD)
