"""Makes one checkpoint of a running job and sends it to the submit side, over as many connections as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pool.errors import PoolError
from pool.images import Manifest
from pool.images.transfer import Pace
from pool.roles.startd.checkpoints.checkpointed_job import CheckpointContext, CheckpointedJob, ScheddReports
from pool.roles.startd.checkpoints.examination import Examination
from pool.starter.checkpointing import CheckpointReport
from pool.wire import ConnectionLost, DeadlineExceeded

TROUBLE = (ConnectionLost, DeadlineExceeded, OSError, TimeoutError)


class CheckpointMaker:
    """Makes and sends the checkpoints of one running job.

    Attributes:
        one: held while a checkpoint is made: one at a time.
        last: wall time of the last checkpoint of this start that arrived on the submit side.
        leaves_by: when a checkpoint of a job that leaves has to have arrived, by the loop's time.
    """

    def __init__(
        self,
        running: CheckpointedJob,
        reports: ScheddReports,
        examination: Examination,
        context: CheckpointContext,
    ) -> None:
        self._running = running
        self._reports = reports
        self._examination = examination
        self._context = context
        self.one = asyncio.Lock()
        self.last: float | None = None
        self.leaves_by: float | None = None

    async def dump(
        self, *, stop: bool, stood: Callable[[], None] = lambda: None, number: str | None = None
    ) -> tuple[CheckpointReport, Manifest]:
        """Have the keeper save the job: see `StartCheckpoints.dump`.

        Raises:
            PoolError: there is no checkpoint this time.
        """
        running = self._running
        assert running.starter is not None
        self._context.peers.make_room()
        wall = self._context.wall()
        checkpoints = running.starter.checkpoints
        report, manifest = await checkpoints.dump(wall, stop=stop, pace=self._pace, stood=stood, number=number)
        await self._examination.report(report.refused)
        if manifest is None:
            raise PoolError(f"job {running.name} cannot be checkpointed: {'; '.join(report.refused)}")
        return report, manifest

    async def send(self, manifest: Manifest, number: str | None = None) -> int:
        """Send a checkpoint to the submit side; returns the bytes sent.

        Raises:
            PoolError: it was refused, or the submit side was out of reach until the lease had ended.
        """
        running = self._running
        assert running.starter is not None
        once_more = self.leaves_by is not None
        while True:
            reconnected = running.claim.reconnected
            if self._is_connected:
                try:
                    sent = await running.starter.checkpoints.send(manifest, self._pace(manifest.size), number)
                    self.last = self._context.wall()
                    return sent
                except TROUBLE:
                    pass
                except PoolError as error:
                    if not (once_more and error.retry):
                        raise
                    once_more = False  # the checkpoint server has gone, and the submit side knows that now
                    continue
            if not await self._reports.another_chance(reconnected):
                raise PoolError("the submit side could not be reached", retry=True)

    async def send_own(self) -> int:
        """Send the checkpoint that the job has written itself; returns the bytes sent.

        Raises:
            PoolError: it cannot be kept, or the submit side was out of reach until the lease had ended.
        """
        running = self._running
        assert running.starter is not None
        while not running.abandoned:
            reconnected = running.claim.reconnected
            if self._is_connected:
                try:
                    return await running.starter.checkpoints.send_own(self._context.wall())
                except TROUBLE:
                    pass
                except PoolError as error:
                    if not error.retry:
                        raise
            if not await self._reports.another_chance(reconnected):
                raise PoolError("the submit side could not be reached until the claim's lease had ended")
        return 0

    @property
    def _is_connected(self) -> bool:
        link = self._running.claim.link
        return link is not None and not link.closed.done()

    def _pace(self, size: int) -> Pace:
        """The node's share of the network for this checkpoint; more of it when the job has to leave soon."""
        share, loop = self._context.share, asyncio.get_running_loop()

        async def wait_for_bytes(piece: int) -> None:
            left = self.leaves_by - loop.time() if self.leaves_by is not None else None
            await share.wait_for_bytes(piece, size / max(left, 1.0) if left is not None else 0.0)

        return wait_for_bytes
