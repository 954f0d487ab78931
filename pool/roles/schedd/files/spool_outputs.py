"""Giving the outputs of jobs that were submitted from another machine to their user, wherever that user is now.

    ["job", cluster, proc], its outputs as an execute machine sends them, ["done"], ["log", size] and its bytes, ...
    ["over", [[cluster, proc, why], ...]]      what was asked for and cannot be given

The other side answers ["kept", cluster, proc] for each job whose outputs are on its disk. Such a job, if it has
completed, leaves the queue, also where the connection breaks off after that.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any

from pool.errors import PoolError
from pool.jobs.states import Happening
from pool.policy.packed import unpack_over
from pool.policy.paged_table import PagedTable
from pool.policy.queue import COMPLETED, HELD, QueuedJob
from pool.roles.schedd.core.intake import TURN
from pool.roles.schedd.core.ledger import JobChange, Ledger
from pool.roles.schedd.files.spool import BATCH, Spool
from pool.shadow.files import FileProblem, UserFiles
from pool.shadow.sending import send_contents
from pool.wire import Stream

JobId = tuple[int, int]


class SpooledOutputs:
    """The outputs in a schedd's spool.

    Args:
        until_logged: waits until users' logs have the ends of jobs; see `Reporting.until_ends_logged`.
    """

    def __init__(self, ledger: Ledger, spool: Spool, until_logged: Callable[[Set[JobId]], Awaitable[None]]) -> None:
        self._ledger = ledger
        self._spool = spool
        self._until_logged = until_logged

    async def send_outputs(self, ids: Sequence[Sequence[int]], owner: str | None, keep: bool, stream: Stream) -> None:
        """Send the outputs of jobs.

        Args:
            ids: [cluster] and [cluster, proc].
            owner: who asks; None is an administrator.
            keep: the jobs stay in the queue.

        Raises:
            PoolError: a job is not there, or its files never were.
        """
        jobs, refused = await self._chosen(ids, owner)
        await self._until_logged({job.id for job in jobs})  # their logs go with their outputs, for the last time
        kept: list[JobId] = []
        hearing = asyncio.ensure_future(self._read_receipts(stream, {job.id for job in jobs}, kept))
        logs: set[str] = set()
        try:
            for job in jobs:
                await stream.send(["job", *job.id])
                await self._send(job, stream, logs)
            await stream.send(["over", refused])
            await hearing
        finally:
            hearing.cancel()
            leaving = asyncio.ensure_future(self._release_fetched([] if keep else kept))
            await asyncio.shield(leaving)
        await stream.send(["left", leaving.result()])
        await stream.finish()

    async def _chosen(self, ids: Sequence[Sequence[int]], owner: str | None) -> tuple[list[QueuedJob], list[list[Any]]]:
        chosen: dict[JobId, QueuedJob] = {}
        refused: list[list[Any]] = []
        for cluster, *procs in ids:
            queued = self._ledger.queue.clusters.get(cluster)
            if queued is not None and owner is not None and queued.owner != owner:
                raise PoolError(f"cluster {cluster} belongs to {queued.owner}")
            if queued is not None and self._spool.record_of(cluster) is None:
                raise PoolError(
                    f"cluster {cluster} was submitted on the schedd's own machine: its outputs are there",
                    hint="only what was submitted with --spool is fetched",
                )
            there = queued.jobs if queued is not None else PagedTable[QueuedJob]()
            for number, proc in enumerate(procs or list(there) or [0]):
                if not number % TURN:
                    await asyncio.sleep(0)
                job = there.get(proc)
                if job is None:
                    said, way_out = await self._not_queued(cluster, proc, owner)
                    raise PoolError(said, hint=way_out)
                if job.status == COMPLETED or (job.status == HELD and not self._spool.waits(job)):
                    chosen[job.id] = job
                else:
                    refused.append([cluster, proc, "it has not ended"])
        return list(chosen.values()), refused

    async def _not_queued(self, cluster: int, proc: int, owner: str | None) -> tuple[str, str]:
        """The message about a job that is not in the queue, and the way out."""
        name = f"{cluster}.{proc}"
        async for rows in self._ledger.store.history(jobs=[(cluster, proc)], limit=1):
            ad = unpack_over(rows[0].ad, rows[0].shared)
            if owner is not None and rows[0].owner != owner:
                break
            if ad.get("StageOutFinish"):
                return f"the outputs of job {name} were fetched before, and are kept no longer", "they are where it was"
            return f"job {name} has left the queue, and no outputs of it are kept", "`poolnode history` has the rest"
        return f"there is no job {name}", "`poolnode q` and `poolnode history` list jobs"

    async def _send(self, job: QueuedJob, stream: Stream, logs: set[str]) -> None:
        files = self._spool.files(job.cluster.owner, job.cluster.id)
        for *item, place in await self._spool.outputs_of(job):
            if item[0] == "dir":
                await stream.send(item)
            else:
                await _send_file(item[:-1], str(place), files, stream)
        await stream.send(["done"])
        log = job.get("UserLog")
        if isinstance(log, str) and log:
            path = log if log.startswith("/") else posixpath.join(str(job.get("Iwd") or "/"), log)
            if path not in logs:
                logs.add(path)
                await _send_file(["log"], path, files, stream)

    async def _read_receipts(self, stream: Stream, given: set[JobId], kept: list[JobId]) -> None:
        async for item in stream:
            if isinstance(item, list) and len(item) == 3 and item[0] == "kept" and (item[1], item[2]) in given:
                kept.append((item[1], item[2]))

    async def _release_fetched(self, kept: Sequence[JobId]) -> int:
        left = 0
        for first in range(0, len(kept), BATCH):
            found = [self._ledger.queue.find(*number) for number in dict.fromkeys(kept[first : first + BATCH])]
            steps = [
                JobChange(job, Happening.LEAVE, {"StageOutFinish": int(self._ledger.now())})
                for job in found
                if job is not None and job.status == COMPLETED
            ]
            if steps:
                await self._ledger.commit(*steps)
                left += len(steps)
        if left:
            self._spool.wake()
        return left


async def _send_file(announced: list[Any], path: str, files: UserFiles, stream: Stream) -> None:
    """Send a file as it is now; one that is gone is left out."""
    try:
        status = await files.stat(path)
    except FileProblem as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise
    if status.is_file:
        await stream.send([*announced, status.size])
        await send_contents(path, status.size, files, stream)
