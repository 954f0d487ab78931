"""The last checkpoint of a job before it leaves its machine (C3, D4)."""

from __future__ import annotations

import asyncio

from pool.errors import PoolError
from pool.images import Manifest
from pool.images.priority import run_normal
from pool.jobs.reasons import Evict
from pool.policy.checkpoints import LAST_PAUSES
from pool.policy.starter import Event
from pool.roles.startd.checkpoints.checkpoint_maker import CheckpointMaker
from pool.roles.startd.checkpoints.checkpointed_job import CheckpointContext, CheckpointedJob, ScheddReports
from pool.roles.startd.checkpoints.costs import CheckpointStart, Costs
from pool.roles.startd.checkpoints.part_turn import PartTurn, refusal
from pool.starter.checkpointing import CheckpointReport

#: Evictions for the machine's owner, who is there: the checkpoint gives way to what that does (D4).
GIVES_WAY = (Evict.OWNER_RETURNED, Evict.VACATED)


class LastCheckpoint:
    """The last checkpoint of one running job, or of one part of a parallel job.

    Args:
        turn: the part's turn to stand still for the last set of all parts' images.
    """

    def __init__(
        self,
        running: CheckpointedJob,
        reports: ScheddReports,
        maker: CheckpointMaker,
        turn: PartTurn,
        costs: Costs,
        context: CheckpointContext,
    ) -> None:
        self._running = running
        self._reports = reports
        self._maker = maker
        self._turn = turn
        self._costs = costs
        self._log = context.log

    async def save_and_send(self) -> bool:
        """Make it and send it; whether it has arrived on the submit side. The job ends with it."""
        running = self._running
        starter = running.starter
        assert starter is not None
        hurry, number = running.why is not None and running.why.kind not in GIVES_WAY, None
        try:
            if running.start.gang:
                number = await self._wait_for_turn()
            checkpoint = self._costs.begin()
            async with self._maker.one:
                with run_normal(when=hurry):
                    report, manifest = await self._dump(number)
        except (PoolError, OSError) as error:
            self._log.warning("no last checkpoint", extra={"job": running.name, "why": str(error)})
            self._turn.has_failed(refusal(running.name, str(error)))
            await starter.handle_event(Event.CKPT_FAILED)
            return False
        await starter.handle_event(Event.CKPT_DONE)
        arrived = await self._send(manifest, number, checkpoint, report.standstill)
        await starter.handle_event(Event.SUCCESS if arrived else Event.FAILURE)
        return arrived

    async def send_left(self) -> bool:
        """The job was found ended: a checkpoint that it left here goes to the submit side before its end does
        (VS 5.3)."""
        running = self._running
        assert running.starter is not None
        checkpoints = running.starter.checkpoints
        manifest = await checkpoints.unsent()
        if manifest is None:
            return False
        if running.start.gang:  # of one part, and there is no set any more that it was for
            await checkpoints.drop(manifest)
            return False
        return await self._send(manifest)

    async def _send(
        self,
        manifest: Manifest,
        number: str | None = None,
        checkpoint: CheckpointStart | None = None,
        standstill: float = 0.0,
    ) -> bool:
        try:
            sent = await self._maker.send(manifest, number)
        except (PoolError, OSError) as error:
            self._log.warning("no last checkpoint", extra={"job": self._running.name, "why": str(error)})
            return False
        if checkpoint is not None:
            self._costs.stored(checkpoint, sent, standstill)
        return True

    async def _dump(self, number: str | None) -> tuple[CheckpointReport, Manifest]:
        """Have the keeper save the job, which ends with it.

        All work since the previous checkpoint depends on it, so one that fails for a temporary reason is tried again
        while there is time. A part of a parallel job gets nothing from other parts meanwhile, so its image fits theirs.
        """
        running, maker, loop = self._running, self._maker, asyncio.get_running_loop()
        keeper = running.starter.keeper if running.starter is not None else None
        assert keeper is not None
        for pause in LAST_PAUSES:
            try:
                return await maker.dump(stop=True, stood=self._turn.has_stood, number=number)
            except PoolError as error:
                late = maker.leaves_by is not None and loop.time() + pause >= maker.leaves_by
                if not error.retry or late:
                    raise
                self._log.info("last checkpoint again", extra={"job": running.name, "why": str(error)})
                await asyncio.wait([keeper.ended], timeout=pause)
                if keeper.ended.done():
                    raise
        return await maker.dump(stop=True, stood=self._turn.has_stood, number=number)

    async def _wait_for_turn(self) -> str:
        """The number of the last set of all parts' images, when this part is to stand still for it.

        Raises:
            PoolError: there is none, or the part has ended.
        """
        running = self._running
        assert running.starter is not None
        assert running.starter.keeper is not None
        assert running.why is not None
        last = {"why": running.why.text, "reason": str(running.why.kind)}
        ended = running.starter.keeper.ended
        number = await self._turn.wait(ended, lambda: self._reports.report_now("leaving", {"last": last}))
        if number is None:
            raise refusal(running.name, "it has ended")
        return number
