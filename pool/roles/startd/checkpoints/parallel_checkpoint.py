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
import logging
from collections.abc import Callable
from typing import Protocol

from pool.errors import PoolError
from pool.jobs.reasons import Reason
from pool.pipes.remote_pipes import RemotePipes
from pool.policy.starter import Event, StartAction, StartState
from pool.roles.base import Spawn
from pool.roles.startd.checkpoints.part_turn import PartTurn, refusal
from pool.starter.starter import Starter

#: Seconds for which a part waits for the next step.
PATIENCE = 60.0
#: Seconds in which a part hears that the submit side has its image; the pipes of the other parts stand meanwhile.
KNOWN_IN = 5.0
HOLD, LEAVE, FREEZE, GO = "hold", "leave", "freeze", "go"
#: Of a part that leaves, and is saved or will be when the checkpoint beside its run is stored.
SAVED_BEFORE_LEAVING = frozenset({StartState.UPDATE, StartState.UPDATE_SUSPENDED, StartState.UPDATE_QUIT})


class ParallelPart(Protocol):
    """The running part.

    Attributes:
        closing: its processes have ended, and it waits until what they wrote has arrived.
        why: the reason for which it has to leave, if it has to.
    """

    why: Reason | None

    @property
    def name(self) -> str: ...
    @property
    def starter(self) -> Starter | None: ...
    @property
    def closing(self) -> bool: ...

    async def handle_event(self, event: Event) -> None: ...


class PartCheckpoints(Protocol):
    """The checkpoints of the part (`pool.roles.startd.checkpoints.job_checkpoints`)."""

    @property
    def can_checkpoint(self) -> bool: ...

    async def save_part(self, number: str, stood: Callable[[], None]) -> None: ...

    async def leave_with_others(self) -> None: ...


class ParallelCheckpoint:
    """One part's share in the checkpoints of its job."""

    def __init__(
        self, part: ParallelPart, checkpoints: PartCheckpoints, turn: PartTurn, spawn: Spawn, log: logging.Logger
    ) -> None:
        self._part = part
        self._checkpoints = checkpoints
        self._spawn = spawn
        self._log = log
        #: The set that is being made and the part's turn in the last one; the step that the set has come to.
        self._turn = turn
        self._step = ""
        self._timer: asyncio.TimerHandle | None = None
        #: Saves the part beside its run.
        self._saving: asyncio.Task[None] | None = None

    @property
    def holds(self) -> bool:
        """Whether the job's pipes and network stand for a set."""
        return bool(self._turn.number)

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
            await self._begin_leaving(number, why)
        elif number != self._turn.number:
            raise self._refusal("it has not waited for the others so long")
        elif step == FREEZE and self._step == HOLD:
            await self._freeze(number)
        elif step == FREEZE and self._step == LEAVE:
            await self._freeze_for_good(number)
        elif step == GO:
            self._end()
        else:
            raise self._refusal(f"it is past the step {step}")

    def reconnected(self, number: str) -> None:
        """The schedd is back, perhaps restarted: a set that it does not know will never be whole, so it ends here.

        Args:
            number: of the set that the schedd makes; empty for none.
        """
        if self._turn.number == number or not self._turn.number:
            return
        if self._step == LEAVE:
            self._stop_waiting()
            self._turn.number = self._step = ""  # the part, which still waits for its turn, asks for another last set
            self._pipes.resume()
        elif not self._turn.is_asked_for:  # otherwise it has ended with its image
            self._end()

    async def _hold(self, number: str) -> None:
        if self._saving is not None:  # a set may be whole, and the next be asked for, before a part of it knows
            await asyncio.wait([self._saving], timeout=KNOWN_IN)
        part = self._part
        starter = part.starter
        if starter is None or part.why is not None or not self._checkpoints.can_checkpoint:
            raise self._refusal("it starts, leaves, or does not want to be")
        self._end()
        if StartAction.DUMP not in await starter.handle_event(Event.CHECKPOINT):
            raise self._refusal("it starts, leaves, or is being saved")
        self._turn.number, self._step = number, HOLD
        self._wait()
        await self._pause(number)

    async def _begin_leaving(self, number: str, why: Reason) -> None:
        part = self._part
        if part.starter is None or part.closing or not self._checkpoints.can_checkpoint:
            raise self._refusal("it starts, ends, or does not want to be")
        if self._step == HOLD:
            self._end()
        self._turn.number, self._step = number, LEAVE
        self._wait()
        if part.why is None:
            part.why = why
            await self._checkpoints.leave_with_others()
        if part.starter.machine.state not in SAVED_BEFORE_LEAVING:
            raise self._refusal("it leaves without")
        with contextlib.suppress(TimeoutError):  # a checkpoint beside its run is stored first
            async with asyncio.timeout(PATIENCE):
                await self._turn.waits.wait()
        if self._turn.number != number or not self._turn.is_asked_for:
            raise self._refusal("it was not ready for it")
        await self._pause(number)

    async def _pause(self, number: str) -> None:
        """Stop the job's pipes and its network for the others' images."""
        await self._pipes.pause()
        if self._turn.number != number:  # given up meanwhile: nobody else would have them go on
            self._pipes.resume()
            raise self._refusal("it has not waited for the others so long")

    async def _freeze_for_good(self, number: str) -> None:
        self._step = FREEZE
        self._stop_waiting()
        if not await self._turn.grant(number):
            raise self._refusal("it has ended")

    async def _freeze(self, number: str) -> None:
        self._step = FREEZE
        self._wait()
        stood: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._saving = self._spawn(self._save(number, stood), "checkpoint", alone=True)
        await asyncio.shield(stood)

    async def _save(self, number: str, stood: asyncio.Future[None]) -> None:
        part = self._part

        def has_stood() -> None:
            if not stood.done():
                stood.set_result(None)

        try:
            await self._checkpoints.save_part(number, has_stood)
        except (PoolError, OSError) as error:
            self._log.warning("no checkpoint", extra={"job": part.name, "why": str(error)})
            if not stood.done():
                stood.set_exception(self._refusal(str(error)))
                stood.exception()  # heard of, whether anybody waits or not
            await part.handle_event(Event.CKPT_FAILED)
        else:
            await part.handle_event(Event.CKPT_DONE)

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
        if not self._turn.number:
            return
        step = self._step
        self._turn.number = self._step = ""
        self._pipes.resume()
        if step == LEAVE:
            self._turn.refuse(self._refusal("another part could not be, or did not follow in time"))
        elif step == HOLD:
            self._spawn(self._part.handle_event(Event.CKPT_FAILED), "checkpoint", alone=True)

    @property
    def _pipes(self) -> RemotePipes:
        starter = self._part.starter
        assert starter is not None
        assert starter.remote_pipes is not None
        return starter.remote_pipes

    def _refusal(self, why: str) -> PoolError:
        return refusal(self._part.name, why)
