"""One part's share in a checkpoint of a whole job that runs on several machines (VS 5.3).

    hold:  nothing is taken out of the job's pipes to others  ->  freeze: it stands still for its image  ->  go
    leave: the same, and it does not go back to running       ->  freeze: it ends with its image

The schedd takes all parts through each step before it begins the next
(`pool.roles.schedd.parallel.parallel_checkpoints`). Then the image is sent to the submit side, and counts when the
images of all parts have arrived. A part that does not hear of the next step in time continues by itself and refuses the
next step, so that no checkpoint is made of parts that do not fit together.

If a part has to leave its machine, the schedd makes the last checkpoint of all parts, and the part waits for its turn
until its own patience, or its owner's, is over and it is killed. If there is no last checkpoint, it gets the soft
signal, as a job that cannot be saved.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from pool.errors import PoolError
from pool.jobs.reasons import Reason
from pool.pipes.remote_pipes import RemotePipes
from pool.policy.starter import Event, StartAction, StartState

if TYPE_CHECKING:
    from pool.roles.startd.running.running_job import RunningJob

#: Seconds for which a part waits for the next step.
PATIENCE = 60.0
HOLD, LEAVE, FREEZE, GO = "hold", "leave", "freeze", "go"
#: Seconds until the schedd is told again that a part has to leave.
AGAIN = 5.0
#: Of a part that leaves, and is saved or will be when the checkpoint beside its run is at home.
SAVED_BEFORE_LEAVING = frozenset({StartState.UPDATE, StartState.UPDATE_SUSPENDED, StartState.UPDATE_QUIT})


class ParallelCheckpoint:
    """What a running part does for them."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        #: The set that is being made, and the step that it has come to.
        self._number = ""
        self._step = ""
        self._timer: asyncio.TimerHandle | None = None
        #: Of a part that leaves: set when it waits for its turn; done with the number of the last set when it is.
        self._leaves = asyncio.Event()
        self._turn: asyncio.Future[str] | None = None
        #: Done when it has stood still for the last set.
        self._stood: asyncio.Future[None] | None = None

    async def step(self, step: str, number: str, why: Reason) -> None:
        """Take a step.

        Args:
            why: the job leaves, if it does.

        Raises:
            PoolError: it cannot be taken; there is no such set.
        """
        if step == HOLD:
            await self._hold(number)
        elif step == LEAVE:
            await self._leave(number, why)
        elif number != self._number:
            raise self._refusal("it has not waited for the others so long")
        elif step == FREEZE and self._step == HOLD:
            await self._freeze(number)
        elif step == FREEZE and self._step == LEAVE:
            await self._freeze_for_good(number)
        elif step == GO:
            self._end()
        else:
            raise self._refusal(f"it is past the step {step}")

    async def _hold(self, number: str) -> None:
        running = self._running
        starter = running.starter
        if starter is None or running.why is not None or not running.saving.can:
            raise self._refusal("it starts, leaves, or does not want to be")
        self._end()
        if StartAction.DUMP not in await starter.happen(Event.CHECKPOINT):
            raise self._refusal("it starts, leaves, or is being saved")
        self._number, self._step = number, HOLD
        self._wait()
        await self._crossings.hold()

    async def _leave(self, number: str, why: Reason) -> None:
        running = self._running
        if running.starter is None or running.closing or not running.saving.can:
            raise self._refusal("it starts, ends, or does not want to be")
        if self._step == HOLD:
            self._end()
        self._number, self._step = number, LEAVE
        self._wait()
        if running.why is None:
            running.why = why
            await running.saving.leave_with_others()
        if running.starter.machine.state not in SAVED_BEFORE_LEAVING:
            raise self._refusal("it leaves without")
        with contextlib.suppress(TimeoutError):  # a checkpoint beside its run comes home before
            async with asyncio.timeout(PATIENCE):
                await self._leaves.wait()
        if self._number != number or self._turn is None:
            raise self._refusal("it was not ready for it")
        await self._crossings.hold()

    async def _freeze_for_good(self, number: str) -> None:
        assert self._turn is not None
        self._step = FREEZE
        self._stop_waiting()
        if self._turn.done():
            raise self._refusal("it has ended")
        self._stood = asyncio.get_running_loop().create_future()
        self._turn.set_result(number)
        await asyncio.shield(self._stood)

    async def turn(self) -> str:
        """The part has to leave: until it is to stand still for the last set; the number of that.

        Raises:
            PoolError: there is none, or its processes have ended.
        """
        running = self._running
        assert running.starter is not None
        assert running.starter.keeper is not None
        assert running.why is not None
        ended = running.starter.keeper.ended
        turn: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._turn = turn
        news: tuple[asyncio.Future[Any], ...] = (turn, ended)
        self._leaves.set()
        last = {"why": running.why.text, "reason": str(running.why.kind)}
        while not turn.done() and not ended.done():
            if not self._number:
                await running.tell_now("leaving", {"last": last})
            await asyncio.wait(news, timeout=AGAIN, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            turn.cancel()
            raise self._refusal("it has ended")
        return await turn

    def has_stood(self) -> None:
        """The part has stood still for the last set."""
        if self._stood is not None and not self._stood.done():
            self._stood.set_result(None)

    def has_failed(self, why: str) -> None:
        """The part cannot be saved for the last set."""
        if self._stood is not None and not self._stood.done():
            self._stood.set_exception(self._refusal(why))
            self._stood.exception()  # heard of, whether anybody waits or not

    async def _freeze(self, number: str) -> None:
        self._step = FREEZE
        self._wait()
        stood: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running.startd.spawn(self._save(number, stood), "checkpoint", alone=True)
        await asyncio.shield(stood)

    async def _save(self, number: str, stood: asyncio.Future[None]) -> None:
        running = self._running

        def has_stood() -> None:
            if not stood.done():
                stood.set_result(None)

        try:
            await running.saving.save_part(number, has_stood)
        except (PoolError, OSError) as error:
            running.startd.log.warning("no checkpoint", extra={"job": running.name, "why": str(error)})
            if not stood.done():
                stood.set_exception(self._refusal(str(error)))
                stood.exception()  # heard of, whether anybody waits or not
            await running.happen(Event.CKPT_FAILED)
        else:
            await running.happen(Event.CKPT_DONE)

    def _wait(self) -> None:
        self._stop_waiting()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        """No more is waited for: what the job writes goes on its way again."""
        self._stop_waiting()
        if not self._number:
            return
        step = self._step
        self._number = self._step = ""
        self._crossings.go()
        if step == LEAVE and self._turn is not None and not self._turn.done():
            self._turn.set_exception(self._refusal("another part could not be, or did not follow in time"))
        elif step == HOLD:
            self._running.startd.spawn(self._running.happen(Event.CKPT_FAILED), "checkpoint", alone=True)

    @property
    def _crossings(self) -> RemotePipes:
        starter = self._running.starter
        assert starter is not None
        assert starter.remote_pipes is not None
        return starter.remote_pipes

    def _refusal(self, why: str) -> PoolError:
        return PoolError(f"a part of job {self._running.name} cannot be checkpointed: {why}", retry=True)
