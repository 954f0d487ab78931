"""Checkpoints that a job writes itself: it exits with its agreed code, the files are kept, and it is started again."""

from __future__ import annotations

import asyncio

from pool.errors import PoolError
from pool.jobs.activation import FileMode
from pool.policy.starter import Event
from pool.roles.startd.checkpoints.checkpoint_maker import CheckpointMaker
from pool.roles.startd.checkpoints.checkpointed_job import CheckpointedJob, ScheddReports
from pool.roles.startd.checkpoints.costs import Costs
from pool.starter.checkpointing import CheckpointReport
from pool.starter.spec import EndReport


class OwnCheckpoint:
    """The checkpoints that one running job writes itself."""

    def __init__(self, running: CheckpointedJob, reports: ScheddReports, maker: CheckpointMaker, costs: Costs) -> None:
        self._running = running
        self._reports = reports
        self._maker = maker
        self._costs = costs
        #: Done when the checkpoint that the job was asked to write is on the submit side.
        self._kept: asyncio.Future[None] | None = None

    def is_announced_by(self, end: EndReport) -> bool:
        """Whether the job has ended, by itself or on its way out, with the code that says it wrote a checkpoint."""
        code = self._running.start.checkpoint_code
        return code is not None and end.code == code and end.cause in ("exit", "vacated") and not self._running.forgot

    async def store(self) -> str | None:
        """Have the checkpoint kept on the submit side; in words what makes that impossible, or None."""
        error = await self._send()
        self.settle(error)
        return error

    async def _send(self) -> str | None:
        checkpoint = self._costs.begin()
        if self._running.start.mode is not FileMode.TRANSFER:
            self._costs.stored(checkpoint, 0, 0.0)
            # It lies where its owner's files do; there is nothing to send.
            await self._reports.report_now("checkpointed", {})
            return None
        try:
            sent = await self._maker.send_own()
        except PoolError as error:
            return str(error)
        if not self._running.abandoned:
            self._costs.stored(checkpoint, sent)
        return None

    def settle(self, error: str | None) -> None:
        """The checkpoint that the job was asked to write is on the submit side, or will not be."""
        waits, self._kept = self._kept, None
        if waits is None or waits.done():
            return
        if error is None:
            waits.set_result(None)
        else:
            waits.set_exception(PoolError(f"job {self._running.name} was not checkpointed: {error}"))
            waits.exception()  # heard of, whether anybody waits or not

    async def request(self) -> CheckpointReport:
        """Send the job the signal at which it writes a checkpoint; where it ends with that, wait until it is kept.

        Raises:
            PoolError: it was not kept.
        """
        running = self._running
        starter = running.starter
        assert starter is not None
        assert starter.keeper is not None
        assert running.start.checkpoint_signal is not None
        loop = asyncio.get_running_loop()
        started_at, self._kept = loop.time(), loop.create_future()
        await starter.keeper.signal(running.start.checkpoint_signal)
        await running.handle_event(Event.CKPT_DONE)
        if running.start.checkpoint_code is not None:
            await self._kept
        return CheckpointReport(0, loop.time() - started_at, 0.0)
