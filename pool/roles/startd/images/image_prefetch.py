"""A checkpoint on its way to the next machine while it is still made; the submit side gets its own copy (C5).

    schedd: this job leaves there and comes here  ->  chunks from there, each laid where it belongs
    its end is recorded, it starts here  ->  the submit side's manifest  ->  missing chunks  ->  the job goes on

Nothing of it has to succeed: what does not come is fetched when the job is started, and what came counts only as far as
home's manifest says so. No job is started by this.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable

from pool.errors import PoolError
from pool.images import Assembly, ImageStore, lay_pieces
from pool.images.priority import run_normal
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.startd.slots.records import SlotClaim

#: Seconds without anything after which the machine before is given up, once the submit side has its job.
PATIENCE = 5.0


class PrefetchedImage:
    """The checkpoint of one job that comes next.

    Args:
        images: opens the store of the job's schedd; blocks on the disk.
        address, ticket: of the machine that makes it.
    """

    def __init__(
        self,
        job: str,
        images: Callable[[], ImageStore],
        links: Links,
        address: str,
        ticket: str,
        log: logging.Logger,
    ) -> None:
        self.job = job
        self.assembly: Assembly | None = None
        self._images = images
        self._links = links
        self._log = log
        self._address, self._ticket = address, ticket
        self._came = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Take in what the other machine sends, until it ends."""
        self._task = asyncio.current_task()
        try:
            images = await asyncio.to_thread(self._images)
            self.assembly = Assembly(images.new_directory())
            link = await self._links.connect(self._address)
            async with await link.stream("startd.chunks_ahead", {"job": self.job, "ticket": self._ticket}) as stream:
                with run_normal():
                    await lay_pieces(stream, self.assembly, self._came.set)
        except (PoolError, OSError, TimeoutError, ValueError, TypeError) as error:
            said = {"job": self.job, "why": str(error)}
            self._log.info("a checkpoint is not had ahead", extra=said)
        finally:
            self._over.set()

    async def wait_complete(self) -> Assembly | None:
        """Wait until no more of the image comes, and hand over what has come; it belongs to the caller from now on."""
        while not self._over.is_set():
            self._came.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (self._over, self._came)]
            done, left = await asyncio.wait(waits, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            for one in left:
                one.cancel()
            if not done:
                await self._end()
        assembly, self.assembly = self.assembly, None
        return assembly

    async def drop(self) -> None:
        """It is not needed."""
        await self._end()
        assembly, self.assembly = self.assembly, None
        if assembly is not None:
            with assembly:
                await asyncio.to_thread(shutil.rmtree, assembly.directory, True)

    async def _end(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._over.set()


def forget_prepared(claim: SlotClaim, spawn: Spawn) -> None:
    """Drop the checkpoint that was fetched ahead on a claim: it is not for the job that comes, or none comes."""
    prepared, claim.prepared = claim.prepared, None
    if prepared is not None:
        spawn(prepared.drop(), "forget what was prepared", alone=True)
