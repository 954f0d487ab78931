"""One part's share in a checkpoint of a whole job that runs on several machines (VS 5.3).

    hold: nothing is taken out of the job's pipes to others  ->  freeze: it stands still for its image  ->  go

The schedd takes all parts through each step before it begins the next (`pool.roles.schedd.sets`). The image then goes
home beside the job's run, and counts when those of all parts are there. Who does not hear of the next step in time
goes on by itself and answers the next with a refusal, so that no set is made of what does not fit together.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pool.errors import PoolError
from pool.policy.starter import Action, Event
from pool.starter.crossings import Crossings

if TYPE_CHECKING:
    from pool.roles.startd.running import Running

#: Seconds for which a part waits for the next step.
PATIENCE = 60.0
HOLD, FREEZE, GO = "hold", "freeze", "go"


class Sets:
    """What a running part does for them."""

    def __init__(self, running: Running) -> None:
        self._running = running
        #: The set that is being made, and the step that it has come to.
        self._number = ""
        self._step = ""
        self._timer: asyncio.TimerHandle | None = None

    async def step(self, step: str, number: str) -> None:
        """Take a step.

        Raises:
            PoolError: it cannot be taken; there is no such set.
        """
        if step == HOLD:
            await self._hold(number)
        elif number != self._number:
            raise self._refusal("it has not waited for the others so long")
        elif step == FREEZE and self._step == HOLD:
            await self._freeze(number)
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
        if Action.DUMP not in await starter.happen(Event.CHECKPOINT):
            raise self._refusal("it starts, leaves, or is being saved")
        self._number, self._step = number, HOLD
        self._wait()
        await self._crossings.hold()

    async def _freeze(self, number: str) -> None:
        self._step = FREEZE
        self._wait()
        stood: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running.startd.spawn(self._save(number, stood), "checkpoint")
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
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._end)

    def _end(self) -> None:
        """No more is waited for: what the job writes goes on its way again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._number:
            return
        held_only = self._step == HOLD
        self._number = self._step = ""
        self._crossings.go()
        if held_only:
            self._running.startd.spawn(self._running.happen(Event.CKPT_FAILED), "checkpoint")

    @property
    def _crossings(self) -> Crossings:
        starter = self._running.starter
        assert starter is not None
        assert starter.crossings is not None
        return starter.crossings

    def _refusal(self, why: str) -> PoolError:
        return PoolError(f"a part of job {self._running.name} cannot be checkpointed: {why}", retry=True)
