"""The checkpoint server that a schedd's checkpoints are on: reached, waited for, lost, and reached again (C4).

    away -> opened -> the checkpoints that waited are put there -> jobs that were kept back go on; a failure: away again

A server that does not answer at once is waited for in the background. Meanwhile checkpoints that arrive wait on the
submit side (`pending_checkpoints`), and jobs that have some wait, because without them they would begin from their
beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pool.config import Settings
from pool.images import BandwidthShare, ImageError, ImageStore
from pool.roles.base import RoleContext, Spawn, bandwidth_of, quota_of
from pool.roles.images.remote import place_for
from pool.roles.schedd.checkpoints.pending_checkpoints import PendingCheckpoints
from pool.roles.schedd.checkpoints.place import CheckpointPlace

#: Seconds between tries to reach a checkpoint server; the last of them again and again.
SERVER_PAUSES = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
#: Seconds for which the start waits for it.
SERVER_MOMENT = 1.0


class CheckpointServer:
    """The server that CHECKPOINT_SERVER names. If it names none, the schedd uses its own directory.

    Args:
        place: is changed when the server is reached or lost.
        keep_back: keeps jobs back that have checkpoints there; called when the server is lost.
        let_go: lets jobs go whose checkpoints can be had again.
        tidy: removes the checkpoints that belong to no job; called when the server is there again.
    """

    def __init__(
        self,
        place: CheckpointPlace,
        given: RoleContext,
        settings: Settings,
        log: logging.Logger,
        spawn: Spawn,
        *,
        keep_back: Callable[[], None],
        let_go: Callable[[], None],
        tidy: Callable[[], None],
    ) -> None:
        self._place = place
        self._given = given
        self._settings = settings
        self._log = log
        self._spawn = spawn
        self._keep_back = keep_back
        self._let_go = let_go
        self._tidy = tidy
        self._server = settings.text("CHECKPOINT_SERVER")
        self._bringing: asyncio.Task[None] | None = None
        self._share = BandwidthShare(bandwidth_of(settings))

    def reload(self, settings: Settings) -> None:
        """Take in settings that were read again; the server's name counts from the next start of the role."""
        self._settings = settings
        self._share.rate = bandwidth_of(settings)

    async def connect(self) -> None:
        """Open the store there; if it does not answer in a moment, it is waited for in the background."""
        if not self._server:
            self.bring_waiting()
            return
        self._place.away = (self._server, f"the checkpoint server {self._server} has not answered yet")
        opening = self._spawn(self._open(), "checkpoint server")
        await asyncio.wait((opening,), timeout=SERVER_MOMENT)
        if not opening.done():
            self._spawn(self._server_returned(opening), "checkpoint server")

    async def _open(self) -> None:
        given, place, pauses, said = self._given, self._place, list(SERVER_PAUSES), False
        while True:
            try:
                loop, share = asyncio.get_running_loop(), self._share
                there = await asyncio.to_thread(place_for, self._server, given.node, given.links, loop, share)
                store = await asyncio.to_thread(ImageStore, there, quota=quota_of(self._settings))
                break
            except ImageError as error:
                place.away = (self._server, error.message)
                if not said:
                    waits = "jobs that have checkpoints there wait for it"
                    self._log.warning(f"the checkpoint server is away; {waits}", extra={"why": error.message})
                said = True
                await asyncio.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
        place.server_returned(store)
        self.bring_waiting()

    def mark_unreachable(self, why: str) -> None:
        """The server could be reached, and cannot be reached any more."""
        if not self._server:
            return
        self._place.away = (self._server, why)
        self._keep_back()
        self._spawn(self._server_returned(self._spawn(self._open(), "checkpoint server")), "checkpoint server")

    async def _server_returned(self, opening: asyncio.Task[None]) -> None:
        await opening
        self._log.info("the checkpoint server is there")
        self._let_go()
        self._tidy()

    def bring_waiting(self) -> None:
        """Put the checkpoints that wait in their place, in the background."""
        waiting = self._place.waiting
        if waiting is not None and waiting.jobs() and (self._bringing is None or self._bringing.done()):
            self._bringing = self._spawn(self._deliver(waiting), "checkpoint server")

    async def _deliver(self, waiting: PendingCheckpoints) -> None:
        place, pauses = self._place, list(SERVER_PAUSES)
        while place.away is None and waiting.jobs():
            try:
                await place.bring_waiting()
            except ImageError as error:
                if place.stuck is None:
                    self._log.warning("checkpoints wait on the submit side", extra={"why": error.message})
                place.stuck = (self._server or "submit side", error.message)
                await asyncio.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
        place.stuck = None
        self._let_go()
