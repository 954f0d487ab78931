"""What comes from elsewhere for a process here: written to its pipe, and told when it was used.

Who sends it is `pool.starter.outlet`; everything else about a job's pipes to other machines `pool.starter.crossings`'.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque

from pool.errors import PoolError
from pool.starter.flows import Inflow
from pool.starter.stream import ALL, GONE, WINDOW, Stream, StreamLost, ready

#: What was used is told when it is so much, bytes.
TELL = WINDOW // 16


class Inlet:
    """What comes from elsewhere for a process here.

    Args:
        fd: the writing end of its pipe, non-blocking; closed when all has been written, or by `close`.
        before: where a checkpoint had it; then nothing is written before `go`.
    """

    def __init__(self, fd: int, before: Inflow | None = None) -> None:
        self._fd = fd
        self._going = asyncio.Event()
        if before is None:
            before = Inflow()
            self._going.set()
        self._waiting: deque[bytes] = deque(before.waiting)
        self._rest = memoryview(b"")
        self._used = before.used
        self._came = before.used + sum(map(len, before.waiting))
        self._ended = before.ended
        self._gone = False
        self._news = asyncio.Event()
        self._work = asyncio.Event()
        self._stream: Stream | None = None
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def serve(self, stream: Stream) -> None:
        """Take what comes on a stream, which takes the place of the one before."""
        if self._stream is not None:
            self._stream.abort()
        self._stream = stream
        stream.widen(WINDOW)
        telling = asyncio.ensure_future(self._tell(stream))
        try:
            await stream.send(self._came)
            async for item in stream:
                if self._stream is not stream:
                    return
                if item is None:
                    self._ended = True
                    self._work.set()
                    await stream.send(ALL)
                    continue
                if not isinstance(item, bytes) or self._came - self._used > 2 * WINDOW:
                    raise StreamLost("a part of the job sent what no part does")
                self._came += len(item)
                self._waiting.append(item)
                self._work.set()
        finally:
            telling.cancel()
            if self._stream is stream:
                self._stream = None

    async def _tell(self, stream: Stream) -> None:
        told = 0
        with contextlib.suppress(PoolError):
            while True:
                self._news.clear()
                if self._gone:
                    await stream.send(GONE)
                    return
                if self._used - told >= TELL:
                    told = self._used
                    await stream.send(told)
                await self._news.wait()

    async def _write(self) -> None:
        try:
            while True:
                while self._waiting:
                    await self._put(self._waiting.popleft())
                await self._going.wait()
                if self._waiting:
                    continue  # it came while nothing was to be written
                if self._ended:
                    return
                self._work.clear()
                await self._work.wait()
        except BrokenPipeError:
            self.nobody_reads()
        finally:
            os.close(self._fd)

    async def _put(self, data: bytes) -> None:
        self._rest = memoryview(data)
        while self._rest:
            await self._going.wait()
            try:
                written = os.write(self._fd, self._rest)
            except BlockingIOError:
                await ready(self._fd, write=True)
                continue
            self._rest = self._rest[written:]
            self._used += written
            if self._used // TELL != (self._used - written) // TELL:
                self._news.set()

    def freeze(self) -> None:
        """Write nothing more to the pipe, until `go`."""
        self._going.clear()

    def frozen(self) -> Inflow:
        """Where it is in a checkpoint of the job, which stands still or did since `freeze`."""
        if not self._ended:
            return Inflow(self._used)
        return Inflow(self._used, True, [piece for piece in (bytes(self._rest), *self._waiting) if piece])

    def go(self) -> None:
        """Go on after `freeze`, or when the job has been put back."""
        self._going.set()

    def nobody_reads(self) -> None:
        """Whoever writes is to be told so."""
        self._gone = True
        self._rest = memoryview(b"")
        self._waiting.clear()
        self._news.set()

    async def close(self) -> None:
        """The part is over: whoever still writes is told that nobody reads any more."""
        self.nobody_reads()
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
