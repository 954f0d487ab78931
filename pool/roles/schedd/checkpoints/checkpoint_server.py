"""The checkpoint server that a schedd's images lie on: reached, waited for, lost, and back again (C4).

    away -> opened -> what waited at home is put there -> jobs that were kept back go on        a failure: away again

One that does not answer at once is waited for beside all else. Meanwhile checkpoints that come wait at home
(`pool.roles.schedd.checkpoints.pending_checkpoints`), and jobs that have some wait rather than begin anew.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pool.images import ImageError, ImageStore, SendingShare
from pool.roles.base import bandwidth_of, quota_of
from pool.roles.images.remote import place_for
from pool.roles.schedd.checkpoints.pending_checkpoints import PendingCheckpoints

if TYPE_CHECKING:
    from pool.roles.schedd.role import Schedd

#: Seconds between tries to reach a checkpoint server; the last of them again and again.
SERVER_PAUSES = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
#: Seconds for which the start waits for it.
SERVER_MOMENT = 1.0


class CheckpointServer:
    """What CHECKPOINT_SERVER names, or where it names nothing the schedd's own directory: that is always there."""

    def __init__(self, schedd: Schedd) -> None:
        self._schedd = schedd
        self._images = schedd.placement.images
        self._server = schedd.settings.text("CHECKPOINT_SERVER")
        self._bringing: asyncio.Task[None] | None = None
        #: What may be sent there.
        self.share = SendingShare(bandwidth_of(schedd.settings))

    async def reach(self) -> None:
        """Open the store there; what does not answer in a moment is waited for."""
        schedd, images = self._schedd, self._images
        if schedd.given.state:
            images.waiting = PendingCheckpoints(schedd.given.state / "spool" / "waiting", quota_of(schedd.settings))
        schedd.queue.keeps_back, images.late = images.keeps_back, self._bring_waiting
        if not self._server:
            self._bring_waiting()
            return
        images.lost = self._is_lost
        images.away = (self._server, f"the checkpoint server {self._server} has not answered yet")
        opening = schedd.spawn(self._open(), "checkpoint server")
        await asyncio.wait((opening,), timeout=SERVER_MOMENT)
        if not opening.done():
            schedd.spawn(self._is_back(opening), "checkpoint server")

    async def _open(self) -> None:
        given, images, pauses, said = self._schedd.given, self._images, list(SERVER_PAUSES), False
        while True:
            try:
                loop, share = asyncio.get_running_loop(), self.share
                place = await asyncio.to_thread(place_for, self._server, given.node, given.links, loop, share)
                store = await asyncio.to_thread(ImageStore, place, quota=quota_of(self._schedd.settings))
                break
            except ImageError as error:
                images.away = (self._server, error.message)
                if not said:
                    waits = "jobs that have checkpoints there wait for it"
                    self._schedd.log.warning(f"the checkpoint server is away; {waits}", extra={"why": error.message})
                said = True
                await asyncio.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
        images.is_back(store)
        self._bring_waiting()

    def _is_lost(self, why: str) -> None:
        self._images.away = (self._server, why)
        self._schedd.queue.keep_back()
        self._schedd.spawn(self._is_back(self._schedd.spawn(self._open(), "checkpoint server")), "checkpoint server")

    async def _is_back(self, opening: asyncio.Task[None]) -> None:
        await opening
        self._schedd.log.info("the checkpoint server is there")
        self._schedd.let_jobs_go()
        self._schedd.tidy()

    def _bring_waiting(self) -> None:
        """Put checkpoints that wait in their place, beside all else."""
        waiting = self._images.waiting
        if waiting is not None and waiting.jobs() and (self._bringing is None or self._bringing.done()):
            self._bringing = self._schedd.spawn(self._bring(waiting), "checkpoint server")

    async def _bring(self, waiting: PendingCheckpoints) -> None:
        images, pauses = self._images, list(SERVER_PAUSES)
        while images.away is None and waiting.jobs():
            try:
                await images.bring()
            except ImageError as error:
                if images.stuck is None:
                    self._schedd.log.warning("checkpoints wait at home", extra={"why": error.message})
                images.stuck = (self._server or "home", error.message)
                await asyncio.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
        images.stuck = None
        self._schedd.let_jobs_go()
