"""Links between machines that do not reach each other, as the node in the middle carries them: it copies sealed bytes.

A relay process (`relay/splice.c`) for each job holds the job's connections, so that the kernel shares processor and
network among jobs as among programs. It begins with the job's first link and ends with the last.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from pool.network.relay_process import RelayFinder, RelayProcess


class _JobSplices:
    """The links of one job."""

    def __init__(self, relay: RelayProcess) -> None:
        self.relay = relay
        self.leashes: dict[socket.socket, Callable[[], None]] = {}


class SpliceRelays:
    """All links that one node carries for others.

    Args:
        program: finds the relay that runs here.
    """

    def __init__(self, program: RelayFinder) -> None:
        self._find = program
        self._jobs: dict[str, _JobSplices] = {}
        self._beginning = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def add(
        self, job: str, one: socket.socket, other: socket.socket, ended: Callable[[], None]
    ) -> Callable[[], None]:
        """Carry the bytes of two connections to each other; return what ends that.

        Args:
            one, other: they are taken over.
            ended: called on the event loop when it is over, also by what is returned.

        Raises:
            PoolError, OSError: there is no relay here.
        """
        with one, other:
            async with self._beginning:
                splices = self._jobs.get(job)
                if splices is None or not await _answers(splices.relay):
                    splices = await self._begun(job)
            leash, far = socket.socketpair()
            leash.setblocking(False)
            with far:
                splices.relay.add_splice(one, other, far)
        splices.leashes[leash] = ended

        def close() -> None:
            self._end(job, splices, leash)

        asyncio.get_running_loop().add_reader(leash, close)
        return close

    async def _begun(self, job: str) -> _JobSplices:
        if (before := self._jobs.pop(job, None)) is not None:
            await self._close(job, before)
        relay = RelayProcess((await self._find()).path)
        await relay.begin(1)
        self._jobs[job] = _JobSplices(relay)
        return self._jobs[job]

    def _end(self, job: str, splices: _JobSplices, leash: socket.socket) -> None:
        if (ended := splices.leashes.pop(leash, None)) is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(leash)
        leash.close()
        ended()
        if not splices.leashes:
            self._closing.add(task := loop.create_task(self._close(job, splices)))
            task.add_done_callback(self._closing.discard)

    async def _close(self, job: str, splices: _JobSplices) -> None:
        if self._jobs.get(job) is splices:
            del self._jobs[job]
        for leash in list(splices.leashes):
            self._end(job, splices, leash)
        await splices.relay.close()

    async def close(self) -> None:
        """End all."""
        await asyncio.gather(*(self._close(job, splices) for job, splices in list(self._jobs.items())))
        await asyncio.gather(*self._closing)


async def _answers(relay: RelayProcess) -> bool:
    """Whether a relay still works: one that was just killed may not be known to have ended."""
    try:
        await relay.traffic()
    except (OSError, ValueError, TimeoutError):
        return False
    return True
