"""The schedd's methods with which people change jobs that are queued, and see to checkpoints of removed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.callers import CHOICE, owner_of
from pool.roles.schedd.core.notes import Notes
from pool.roles.schedd.submit.job_actions import JobActions
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import TEXTS

#: Seconds between two reports on the progress of a long change of jobs.
TELL_EVERY = 1.0


class ActionMethods(Service):
    """The methods that change jobs, served under the schedd's name.

    Args:
        named: the parameters of a choice of jobs, with users as the queue names them.
        offer: called with an owner who has idle jobs that may be started.
        wake_spool: called when jobs may have left the queue.
    """

    def __init__(
        self,
        acts: JobActions,
        notes: Notes,
        images: StoredCheckpoints,
        *,
        named: Callable[[dict[str, Any]], dict[str, Any]],
        offer: Callable[[str], None],
        wake_spool: Callable[[], None],
    ) -> None:
        self._acts = acts
        self._notes = notes
        self._images = images
        self._named = named
        self._offer = offer
        self._wake_spool = wake_spool

    @method(Right.SUBMIT, takes={"action": str, **CHOICE})
    async def act(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Remove, hold, release, vacate jobs or change their priority: see `JobActions.act`."""
        return await self._act(call, params, [0])

    @streaming(Right.SUBMIT, takes={"action": str, **CHOICE})
    async def act_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """As `act`: how many jobs are done, now and again, which may take long; the answer comes last."""
        count = [0]
        acting = asyncio.get_running_loop().create_task(self._act(call, params, count))
        try:
            while not (await asyncio.wait([acting], timeout=TELL_EVERY))[0]:
                await stream.send(count[0])
        except BaseException:  # nobody waits any more; it is done to its end
            acting.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise
        await stream.send(acting.result())
        await stream.finish()

    async def _act(self, call: Call, params: dict[str, Any], count: list[int]) -> dict[str, Any]:
        everybody = Right.ADMINISTER in call.identity.rights
        only, params = None if everybody else owner_of(call, {}), self._named(params)
        done = await self._acts.act(params, only, call.identity.name, count)
        for owner in done["owners"]:
            self._offer(owner)
        self._wake_spool()
        return done

    @method(Right.SUBMIT, takes={"programs": TEXTS})
    async def refusals(self, call: Call, params: dict[str, Any]) -> dict[str, str]:
        """Why one's programs could not be checkpointed when they ran last: {programs} -> program to reason"""
        return self._notes.refusals(owner_of(call, {}), params["programs"])

    @method(Right.SUBMIT)
    async def checkpoints(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """The checkpoints that `rm --checkpoint` has kept: one's own, an administrator's answer is everybody's."""
        everybody = Right.ADMINISTER in call.identity.rights
        return self._images.kept_ones(None if everybody else owner_of(call, {}))

    @method(Right.SUBMIT, takes={"jobs": TEXTS})
    async def drop_checkpoints(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Delete kept checkpoints: {jobs: ids of the removed jobs} -> {done, refused}"""
        everybody = Right.ADMINISTER in call.identity.rights
        return await self._images.drop_kept(params["jobs"], None if everybody else owner_of(call, {}))
