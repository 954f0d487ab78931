"""The reader's side of one remote pipe: writes the bytes that arrive to the pipe, and reports how many were used.

The other end is `pool.pipes.sender`; `pool.pipes.remote_pipes` has the whole picture.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque

from pool.errors import PoolError
from pool.pipes.positions import ReceiverPosition
from pool.pipes.protocol import ALL, GONE, WINDOW, PipeStream, StreamLost, ready

#: Used bytes are reported each time they are so many more.
REPORT_STEP = WINDOW // 16


class Receiver:
    """The receiver of one pipe.

    Args:
        fd: the writing end of the pipe, non-blocking; closed when all bytes were written, or by `close`.
        before: its position in the checkpoint; if given, nothing is written before `resume`.
    """

    def __init__(self, fd: int, before: ReceiverPosition | None = None) -> None:
        self._fd = fd
        self._going = asyncio.Event()
        if before is None:
            before = ReceiverPosition()
            self._going.set()
        self._waiting: deque[bytes] = deque(before.waiting)
        self._rest = memoryview(b"")
        self._used = before.used
        self._came = before.used + sum(map(len, before.waiting))
        self._ended = before.ended
        self._gone = False
        self._news = asyncio.Event()
        self._work = asyncio.Event()
        self._stream: PipeStream | None = None
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def serve(self, stream: PipeStream) -> None:
        """Take the bytes of a stream, which replaces the previous one."""
        if self._stream is not None:
            self._stream.abort()
        self._stream = stream
        stream.raise_limit(WINDOW)
        reporting = asyncio.ensure_future(self._report(stream))
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
            reporting.cancel()
            if self._stream is stream:
                self._stream = None

    async def _report(self, stream: PipeStream) -> None:
        reported = 0
        with contextlib.suppress(PoolError):
            while True:
                self._news.clear()
                if self._gone:
                    await stream.send(GONE)
                    return
                if self._used - reported >= REPORT_STEP:
                    reported = self._used
                    await stream.send(reported)
                await self._news.wait()

    async def _write(self) -> None:
        try:
            while True:
                while self._waiting:
                    await self._write_all(self._waiting.popleft())
                await self._going.wait()
                if self._waiting:
                    continue  # it arrived while the pipe was frozen
                if self._ended:
                    return
                self._work.clear()
                await self._work.wait()
        except BrokenPipeError:
            self.reader_is_gone()
        finally:
            os.close(self._fd)

    async def _write_all(self, data: bytes) -> None:
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
            if self._used // REPORT_STEP != (self._used - written) // REPORT_STEP:
                self._news.set()

    def freeze(self) -> None:
        """Write nothing more to the pipe, until `resume`."""
        self._going.clear()

    def frozen(self) -> ReceiverPosition:
        """Return the position for a checkpoint; the job is frozen, or was since `freeze`."""
        if not self._ended:
            return ReceiverPosition(self._used)
        return ReceiverPosition(self._used, True, [piece for piece in (bytes(self._rest), *self._waiting) if piece])

    def resume(self) -> None:
        """Write again after `freeze`, or after the job's restart."""
        self._going.set()

    def reader_is_gone(self) -> None:
        """Report to the writer that no reader is left."""
        self._gone = True
        self._rest = memoryview(b"")
        self._waiting.clear()
        self._news.set()

    async def close(self) -> None:
        """Close the pipe and report to the writer that no reader is left: the part has ended."""
        self.reader_is_gone()
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
