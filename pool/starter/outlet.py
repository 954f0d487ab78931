"""What a process here writes for one elsewhere: taken out of its pipe, sent, and kept until it was used there.

Only what was used there is forgotten, so that a stream that breaks goes on in another one from the byte that came last.
Everything else about a job's pipes to other machines is `pool.starter.crossings`'.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable

from pool.errors import PoolError
from pool.starter.flows import Outflow
from pool.starter.stream import ALL, GONE, ROOM, WINDOW, Stream, StreamLost, ready

#: Seconds until a stream that broke is tried again, the first time and at most.
AGAIN, SELDOM = 0.05, 2.0


class Outlet:
    """What a process here writes for one elsewhere.

    Args:
        fd: the reading end of its pipe, non-blocking; closed in the end.
        join: makes a stream to the other part.
        patience: seconds for which the other part may be out of reach.
        before: where a checkpoint had it.
    """

    def __init__(
        self, fd: int, join: Callable[[], Awaitable[Stream]], patience: float, before: Outflow | None = None
    ) -> None:
        before = before if before is not None else Outflow()
        self._fd = fd
        self._join = join
        self._patience = patience
        self._kept: deque[tuple[int, bytes]] = deque()
        self._read = self._used = before.read - sum(map(len, before.kept))
        for data in before.kept:
            self._keep(data)
        self._at_end = False
        self._room = asyncio.Event()
        self._over = before.over
        #: What was taken out of the pipe while it was held, and is to be sent yet.
        self._late: deque[bytes] = deque()
        self._going = asyncio.Event()
        self._going.set()
        self._held = Outflow()

    async def run(self) -> None:
        """Until all that is written has come to the other side, or nobody there reads it any more.

        Raises:
            StreamLost: it cannot be reached, or knows nothing of this stream.
        """
        loop, pause = asyncio.get_running_loop(), AGAIN
        reached = loop.time()
        try:
            while not self._over:
                try:
                    if await self._through(await self._join()):
                        await self._going.wait()  # its end is not for who is about to stand still
                        self._over = True
                        return
                    reached, pause = loop.time(), AGAIN
                except (PoolError, OSError, EOFError, TimeoutError) as error:
                    final = isinstance(error, PoolError) and not error.retry
                    if final or loop.time() - reached > self._patience:
                        raise StreamLost(f"a stream to another part of the job was lost: {error}") from error
                await asyncio.sleep(pause)
                pause = min(pause * 2, SELDOM)
        finally:
            os.close(self._fd)
            self._fd = -1

    async def _through(self, stream: Stream) -> bool:
        """Go on where the other side is, as long as this stream lasts; True when there is no more to do."""
        try:
            first = await stream.receive()
            if first == GONE:
                return True
            came = int(first)
            self._go_on_from(came)
            hearing = asyncio.ensure_future(self._hear(stream))
            sending = asyncio.ensure_future(self._send(stream, came))
            try:
                await asyncio.wait([hearing, sending], return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
                return await hearing
            finally:
                for task in (hearing, sending):
                    task.cancel()
                await asyncio.gather(hearing, sending, return_exceptions=True)
        finally:
            stream.abort()

    def _go_on_from(self, came: int) -> None:
        if not self._read - sum(len(data) for _, data in self._kept) <= came <= self._read:
            raise StreamLost(f"a stream to another part of the job was lost: it has {came} bytes of {self._read}")

    def _keep(self, data: bytes) -> None:
        self._read += len(data)
        self._kept.append((self._read, data))

    def _take_back(self, used: int) -> None:
        while self._kept and self._kept[0][0] <= used:
            self._kept.popleft()

    async def _send(self, stream: Stream, came: int) -> None:
        self._late.clear()  # it is among what is kept
        for end, data in list(self._kept):
            if end > came:
                await stream.send(data[max(0, came - (end - len(data))) :])
        while not self._at_end:
            while self._read - self._used >= WINDOW:
                self._room.clear()
                await self._room.wait()
            data = await self._next()
            if not data:
                self._at_end = True
                break
            await stream.send(data)
        await stream.send(None)

    async def _next(self) -> bytes:
        """What is to be sent next; nothing at the end of file."""
        while not self._late:
            await self._going.wait()
            await ready(self._fd, write=False)
            if self._going.is_set():
                data = os.read(self._fd, ROOM)
                if data:
                    self._keep(data)
                return data
        return self._late.popleft()

    async def hold(self) -> None:
        """Take nothing more out of the pipe, until `go`."""
        self._going.clear()
        self._held = Outflow(self._read, [data for _, data in self._kept], self._over)

    def frozen(self, held: bool) -> Outflow:
        """Where it is in a checkpoint of the job, which stands still or did since `hold`.

        Args:
            held: a process in the image can write to the pipe, and what lies in it is in the image. Else it is final.
        """
        if not held and self._fd >= 0:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self._fd, ROOM):
                    self._keep(data)
                    self._late.append(data)
                    self._held.kept.append(data)
            self._held.read = self._read
        return self._held

    def go(self) -> None:
        """Go on after `hold`."""
        self._going.set()
        self._held = Outflow()

    async def _hear(self, stream: Stream) -> bool:
        async for item in stream:
            if item in (ALL, GONE):
                return True
            self._used = max(self._used, int(item))
            self._take_back(self._used)
            self._room.set()
        return False
