"""Handles on what was submitted: a cluster and a job of it.

A handle is a pool and an id, nothing more: it is cheap, it can be made for jobs submitted yesterday, and it
never goes stale. Waiting follows the event stream; it never polls.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from pool.client.ids import job_id, one_job
from pool.client.results import NEEDS, Result, read_result
from pool.client.waiting import Progress, wait_for
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.classad import ClassAd
    from pool.client.pool import ActionResult, Pool
    from pool.client.spooling import FetchResult
    from pool.jobs.events import JobEvent


class _Chosen(ABC):
    """The methods that clusters and jobs share."""

    pool: Pool

    @property
    @abstractmethod
    def ids(self) -> list[tuple[int, ...]]:
        """The name of the jobs in a query."""

    async def events(self, after: int = 0) -> AsyncIterator[JobEvent]:
        """The events of these jobs from the first on, as they happen, without end."""
        from pool.jobs.events import JobEvent

        async for batch in self.pool.events(cluster=self.ids[0][0], ids=self.ids, after=after):
            for event in batch:
                try:
                    yield JobEvent.from_wire(event)
                except ValueError:
                    continue  # of a kind that only a newer schedd knows

    async def remove(self, reason: str = "", *, force: bool = False, checkpoint: bool = False) -> ActionResult:
        """Takes the jobs out of the queue; running ones are stopped first, and saved if their checkpoint is kept."""
        return await self.pool.act("remove", ids=self.ids, reason=reason, force=force, checkpoint=checkpoint)

    async def hold(self, reason: str = "") -> ActionResult:
        """Keeps the jobs in the queue without running them."""
        return await self.pool.act("hold", ids=self.ids, reason=reason)

    async def release(self, reason: str = "") -> ActionResult:
        """Lets held jobs run again."""
        return await self.pool.act("release", ids=self.ids, reason=reason)

    async def vacate(self, *, fast: bool = False) -> ActionResult:
        """Takes running jobs off their machines; they go back to the queue."""
        return await self.pool.act("vacate", ids=self.ids, force=fast)

    async def checkpoint(self) -> ActionResult:
        """Has running jobs saved now; each is on the submit side when this returns."""
        return await self.pool.act("checkpoint", ids=self.ids)

    async def edit(self, **attributes: str) -> ActionResult:
        """Changes attributes of the jobs' ads; the values are texts of expressions: `edit(RequestMemory="2048")`."""
        return await self.pool.act("edit", ids=self.ids, attributes=attributes)

    async def fetch(self, into: str | os.PathLike[str] | None = None, *, keep: bool = False) -> FetchResult:
        """Fetches the outputs of jobs that were submitted from another machine; see `Pool.fetch`."""
        return await self.pool.fetch(self.ids, into, keep=keep)

    async def prio(self, value: int) -> ActionResult:
        """Sets the jobs' priority among their owner's own jobs; higher goes first."""
        return await self.pool.act("prio", ids=self.ids, value=value)


class Cluster(_Chosen):
    """The jobs of one submit.

    Attributes:
        cluster: its number.
        count: how many jobs it was submitted with, None when the handle was made from the number alone.
        spooled: its files were sent along when it was submitted: `fetch` brings its outputs.
        parameters: the data frame that it was submitted with, whose rows are its jobs; None without.
    """

    def __init__(self, pool: Pool, cluster: int | str, count: int | None = None) -> None:
        self.pool = pool
        (self.cluster,) = _cluster_number(cluster)
        self.count = count
        self.spooled = False
        self.parameters: Any = None

    def __repr__(self) -> str:
        return f"<Cluster {self.cluster}>"

    def __getitem__(self, proc: int) -> Job:
        return Job(self.pool, self.cluster, proc)

    @property
    def ids(self) -> list[tuple[int, ...]]:
        return [(self.cluster,)]

    @property
    def jobs(self) -> list[Job]:
        """A handle on each job, where it is known how many there are."""
        return [Job(self.pool, self.cluster, proc) for proc in range(self.count or 0)]

    async def ads(self, attributes: Sequence[str] | None = None) -> list[ClassAd]:
        """The jobs' ads, wherever they are now.

        Raises:
            PoolError: there is no such cluster.
        """
        from pool.classad import ClassAd

        return [ClassAd.from_wire(ad) for ad in await self._found(attributes)]

    async def results(self) -> list[Result]:
        """How each job stands, ended or not."""
        return [read_result(ad) for ad in await self._found(NEEDS)]

    async def frame(self, library: str | None = None) -> Any:
        """The results as a data frame, a row for each job; its parameters come first where it was submitted with a
        data frame, whose rows it then keeps in order. A column of the results is named `job_...` where a parameter has
        its name.

        Args:
            library: `pandas` or `polars`; by default that of the parameters, else pandas.

        Raises:
            PoolError: there is no such cluster, or no such library here.
        """
        from pool.client.items import frame_of

        return frame_of(await self.results(), self.parameters, library)

    async def _found(self, attributes: Sequence[str] | None) -> list[dict[str, Any]]:
        found = await self.pool.find(self.ids, attributes)
        if not found:
            raise PoolError(f"there is no cluster {self.cluster}", hint="`poolnode q` and `history` list them")
        return found

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
        return await wait_for(self.pool, self.ids, known, timeout, progress, until_stuck)


class Job(_Chosen):
    """One job: `cluster.proc`."""

    def __init__(self, pool: Pool, cluster: int, proc: int) -> None:
        self.pool = pool
        self.cluster, self.proc = one_job((cluster, proc))

    def __repr__(self) -> str:
        return f"<Job {self.cluster}.{self.proc}>"

    @property
    def ids(self) -> list[tuple[int, ...]]:
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
        return (await wait_for(self.pool, self.ids, None, timeout))[0]

    async def tail(self, file: str = "out", *, offset: int = 0, follow: bool = True) -> AsyncIterator[bytes]:
        """The job's output as it grows, until the job has ended. `file` is out or err."""
        async for piece in self.pool.tail(self.cluster, self.proc, file=file, offset=offset, follow=follow):
            yield piece

    async def _find(self, attributes: Sequence[str] | None) -> dict[str, Any]:
        found = await self.pool.find(self.ids, attributes)
        if not found:
            raise PoolError(f"there is no job {self.cluster}.{self.proc}", hint="`poolnode q` and `history` list them")
        return found[0]


def _cluster_number(cluster: Any) -> tuple[int]:
    found = job_id(cluster)
    if len(found) != 1:
        raise PoolError(f"{cluster!r} is one job, not a cluster", hint="pool.job makes a handle on a job")
    return (found[0],)
