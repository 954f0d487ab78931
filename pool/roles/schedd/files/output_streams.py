"""`stream_output` and `stream_error`: standard output of jobs whose files are copied, written as it comes.

The schedd asks the job's machine for new bytes, as `poolnode tail` does, and appends them to the file on the submit
side with its owner's rights. At the end the outputs are sent back as always, and the whole file replaces this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pool.errors import PoolError
from pool.jobs.activation import NOTHING, Activation, FileMode
from pool.jobs.events import EventKind, JobEvent
from pool.policy.queue import ACTIVE, JobId, QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ledger import ignore_alike
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.shadow.files import UserFiles

#: Seconds between two looks at a running job's output, and after one that failed.
EVERY, LATER = 1.0, 5.0
_FILES = (("out", "StreamOut"), ("err", "StreamErr"))


class _Follower:
    """One output of one run on its way to the submit side."""

    def __init__(self, job: QueuedJob, claim: HeldClaim, start: Activation, which: str, path: str) -> None:
        self.job = job
        self.claim = claim
        self.start = start
        self.which = which
        self.path = path
        self.offset = 0
        self.over = False
        #: Held while the file is changed.
        self.writing = asyncio.Lock()

    @property
    def runs(self) -> bool:
        claim = self.claim
        return not self.over and claim.job is self.job and claim.start is self.start and self.job.status in ACTIVE

    async def end(self) -> None:
        """Change the file no more once this has returned."""
        self.over = True
        async with self.writing:
            return


class OutputStreams:
    """The streamed outputs of one schedd's jobs.

    Args:
        files: a user's files as the jobs of a cluster name them.
        costs: count the work for a job.
    """

    def __init__(self, context: ScheddContext, files: Callable[[str, int], UserFiles], costs: SubmitSideCosts) -> None:
        self._context = context
        self._files = files
        self._costs = costs
        self._followers: dict[tuple[JobId, int, str], _Follower] = {}
        context.ledger.listen(self._on_events, ignore_alike)

    def restore(self, running: Sequence[QueuedJob]) -> None:
        """The queue has been loaded: follow those that run on, once it is known again how they were started."""
        for job in running:
            if job.status in ACTIVE and any(job.get(asks) is True for _, asks in _FILES):
                self._context.spawn(self._begin_again(job), "stream output", alone=True)

    async def _begin_again(self, job: QueuedJob) -> None:
        while job.status in ACTIVE:
            if job.run is not None and job.run.start is not None:
                await self.begin(job)
                return
            await asyncio.sleep(EVERY)

    def _on_events(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            job = self._context.queue.find(event.cluster, event.proc) if event.kind is EventKind.EXECUTE else None
            if job is not None and any(job.get(asks) is True for _, asks in _FILES):
                self._context.spawn(self.begin(job), "stream output", alone=True)

    async def begin(self, job: QueuedJob) -> None:
        """A job's program runs: follow what it writes, where it does not write to the submit side itself."""
        claim: HeldClaim | None = job.run if job.status in ACTIVE else None
        if claim is None:
            return
        nodes = claim.gang is not None and claim.gang.parallel
        for one in list(claim.gang.claims.values()) if claim.gang is not None and nodes else [claim]:
            await self._begin(job, one)

    async def _begin(self, job: QueuedJob, claim: HeldClaim) -> None:
        start = claim.start
        if start is None or start.mode is not FileMode.TRANSFER or start.processes:
            return
        paths = {"out": start.stdout, "err": start.stderr}
        wanted = [which for which, asks in _FILES if job.get(asks) is True and paths[which] != NOTHING]
        if len(wanted) == 2 and paths["out"] == paths["err"]:
            wanted = ["out"]
        for which in wanted:
            path = paths[which] if paths[which].startswith("/") else f"{start.iwd}/{paths[which]}"
            before = self._followers.get((job.id, start.part, which))
            if before is not None:
                if before.start is start and not before.over:
                    continue
                await before.end()
            follower = self._followers[job.id, start.part, which] = _Follower(job, claim, start, which, path)
            self._context.spawn(self._follow(follower), "stream output", alone=True)

    async def end(self, start: Activation) -> None:
        """The whole output is about to take its place: nothing is added to it any more."""
        for which, _ in _FILES:
            if (follower := self._followers.get((start.job, start.part, which))) is not None:
                await follower.end()

    async def _follow(self, one: _Follower) -> None:
        """Until the run is over. A failed write is tried again: the end brings all of the output in any case."""
        fresh, logged = True, False
        files = self._files(one.job.cluster.owner, one.job.cluster.id)
        try:
            while one.runs:
                pause = EVERY
                try:
                    if fresh:
                        await self._empty(one, files)
                        fresh = False
                    await self._costs.measured(one.claim.id, self._add(one, files))
                except (PoolError, *TROUBLE) as error:
                    pause = LATER
                    if not logged:
                        said = {"job": one.start.name, "why": str(error)}
                        self._context.log.info("output is not streamed", extra=said)
                    logged = True
                await asyncio.sleep(pause)
        finally:
            key = one.job.id, one.start.part, one.which
            if self._followers.get(key) is one:
                del self._followers[key]

    async def _empty(self, one: _Follower, files: UserFiles) -> None:
        async with one.writing:
            if one.runs:
                await (await files.create(one.path)).commit()

    async def _add(self, one: _Follower, files: UserFiles) -> None:
        """Append the new bytes to the file."""
        link = await self._context.links.connect(one.claim.startd)
        wanted = {"claim": one.claim.id, "file": one.which, "offset": one.offset, "lines": None}
        remote = await link.stream("startd.tail", wanted)
        async for chunk in remote:
            async with one.writing:
                if not one.runs:
                    remote.abort()
                    return
                await files.append(one.path, chunk)
                one.offset += len(chunk)
