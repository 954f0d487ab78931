"""The writer's side of one remote pipe: reads the pipe, sends the bytes, keeps them until the other side has used them.

Only used bytes are dropped, so a broken stream continues in a new one after the last byte that arrived.
`pool.pipes.remote_pipes` has the whole picture.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable

from pool.errors import PoolError
from pool.pipes.positions import SenderPosition
from pool.pipes.protocol import ALL, GONE, ROOM, WINDOW, PipeStream, StreamLost, ready

#: Seconds until a broken stream is opened again: at first, and at most.
AGAIN, SELDOM = 0.05, 2.0


class Sender:
    """The sender of one pipe.

    Args:
        fd: the reading end of the pipe, non-blocking; closed at the end of `run`.
        join: opens a stream to the other part.
        patience: seconds for which the other part may be out of reach.
        before: its position in the checkpoint.
    """

    def __init__(
        self, fd: int, join: Callable[[], Awaitable[PipeStream]], patience: float, before: SenderPosition | None = None
    ) -> None:
        before = before if before is not None else SenderPosition()
        self._fd = fd
        self._join = join
        self._patience = patience
        self._kept: deque[tuple[int, bytes]] = deque()
        self._read = self._used = before.read - sum(map(len, before.kept))
        for data in before.kept:
            self._store_unsent(data)
        self._at_end = False
        self._room = asyncio.Event()
        self._over = before.over
        #: Bytes that were read while the pipe was held, and are not sent yet.
        self._late: deque[bytes] = deque()
        self._going = asyncio.Event()
        self._going.set()
        self._held = SenderPosition()

    async def run(self) -> None:
        """Send until the other side has all bytes, or has no reader any more.

        Raises:
            StreamLost: the other side is out of reach, or does not know this stream.
        """
        loop, pause = asyncio.get_running_loop(), AGAIN
        reached = loop.time()
        try:
            while not self._over:
                try:
                    if await self._through(await self._join()):
                        await self._going.wait()  # a part that is about to be frozen gets no end of file
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

    async def _through(self, stream: PipeStream) -> bool:
        """Continue from the other side's position until this stream breaks; True if nothing is left to send."""
        try:
            first = await stream.receive()
            if first == GONE:
                return True
            came = int(first)
            self._go_on_from(came)
            hearing = asyncio.ensure_future(self._read_reports(stream))
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

    def _store_unsent(self, data: bytes) -> None:
        self._read += len(data)
        self._kept.append((self._read, data))

    def _drop_received(self, used: int) -> None:
        while self._kept and self._kept[0][0] <= used:
            self._kept.popleft()

    async def _send(self, stream: PipeStream, came: int) -> None:
        self._late.clear()  # these bytes are among the kept ones
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
        """Return the next bytes to send; b'' at end of file."""
        while not self._late:
            await self._going.wait()
            if self._late:
                break  # what a checkpoint took out of the pipe comes before what is in it now
            await ready(self._fd, write=False)
            if self._going.is_set() and not self._late:
                data = os.read(self._fd, ROOM)
                if data:
                    self._store_unsent(data)
                return data
        return self._late.popleft()

    async def pause(self) -> None:
        """Stop reading the pipe, until `resume`."""
        self._going.clear()
        self._held = SenderPosition(self._read, [data for _, data in self._kept], self._over)

    def frozen(self, held: bool) -> SenderPosition:
        """Where it is in a checkpoint of the job, which stands still or did since `pause`.

        Args:
            held: a process in the image can write to the pipe, so the image has the bytes in it.
                Otherwise they are read now.
        """
        if not held and self._fd >= 0:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self._fd, ROOM):
                    self._store_unsent(data)
                    self._late.append(data)
                    self._held.kept.append(data)
            self._held.read = self._read
        return self._held

    def resume(self) -> None:
        """Read the pipe again after `pause`."""
        self._going.set()
        self._held = SenderPosition()

    async def _read_reports(self, stream: PipeStream) -> bool:
        async for item in stream:
            if item in (ALL, GONE):
                return True
            self._used = max(self._used, int(item))
            self._drop_received(self._used)
            self._room.set()
        return False
