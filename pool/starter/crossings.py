"""A job's pipes to other machines: bytes from a pipe here to a pipe there, all of them, once, in order (G8).

    process | pipe | Outlet ~~~ stream between the nodes ~~~ Inlet | pipe | process

Each process has a pipe of the kernel's, and finds end of file and SIGPIPE on it as within one machine: when the
writers are done and every byte has been read the reader's pipe is closed, and when nobody reads any more the writer's
is. An outlet keeps what has not been taken out of the other side's memory, at most `WINDOW` bytes, so that a stream
that breaks goes on in another one from the byte that came last, and so that a delay between the machines costs a
delay and no rate. Where that cannot be the part has to be stopped: a byte may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.activation import Activation

#: Bytes of one stream on their way at most, and so the rate over a delay: so many bytes for each round trip.
WINDOW = 32 << 20
#: Bytes that a kernel's pipe holds, and that are read at a time.
ROOM = 1 << 20
#: What was used is told when it is so much, bytes.
TELL = WINDOW // 16
#: Seconds until a stream that broke is tried again, the first time and at most.
AGAIN, SELDOM = 0.05, 2.0
#: What an inlet says beside numbers: all has come; nobody reads it any more.
ALL, GONE = "all", "gone"


class StreamLost(PoolError):
    """What one part of a job wrote cannot reach another any more."""


class Stream(Protocol):
    """The part of a wire stream that is used here."""

    def widen(self, size: int, /) -> None: ...
    async def send(self, item: Any, /) -> None: ...
    async def receive(self) -> Any: ...
    async def finish(self) -> None: ...
    def abort(self) -> None: ...
    def __aiter__(self) -> Any: ...


class Elsewhere(Protocol):
    """How the other parts of a job are met and reached."""

    @property
    def patience(self) -> float:
        """Seconds for which another part may be out of reach."""

    async def meet(self, activation: Activation) -> list[dict[str, Any]]:
        """Wait until every part can begin; what each brought."""

    async def join(self, card: dict[str, Any], activation: Activation, stream: int) -> Stream:
        """A stream to the part that brought this card."""

    def expect(self, activation: Activation, stream: int, inlet: Inlet) -> None:
        """Have what comes for this stream given to the inlet."""

    def forget(self, activation: Activation) -> None:
        """Nothing is expected for this start any more but to be told that nobody reads."""


class Outlet:
    """What a process here writes for one elsewhere.

    Args:
        fd: the reading end of its pipe, non-blocking; closed in the end.
        join: makes a stream to the other part.
        patience: seconds for which the other part may be out of reach.
    """

    def __init__(self, fd: int, join: Callable[[], Awaitable[Stream]], patience: float) -> None:
        self._fd = fd
        self._join = join
        self._patience = patience
        self._kept: deque[tuple[int, bytes]] = deque()
        self._read = 0
        self._used = 0
        self._at_end = False
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Until all that is written has come to the other side, or nobody there reads it any more.

        Raises:
            StreamLost: it cannot be reached, or knows nothing of this stream.
        """
        loop, pause = asyncio.get_running_loop(), AGAIN
        reached = loop.time()
        try:
            while True:
                try:
                    if await self._through(await self._join()):
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

    async def _through(self, stream: Stream) -> bool:
        """Go on where the other side is, as long as this stream lasts; True when there is no more to do."""
        try:
            first = await stream.receive()
            if first == GONE:
                return True
            self._go_on_from(int(first))
            hearing = asyncio.ensure_future(self._hear(stream))
            sending = asyncio.ensure_future(self._send(stream))
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
        self._take_back(came)

    def _take_back(self, used: int) -> None:
        while self._kept and self._kept[0][0] <= used:
            self._kept.popleft()

    async def _send(self, stream: Stream) -> None:
        for _, data in list(self._kept):
            await stream.send(data)
        while not self._at_end:
            while self._read - self._used >= WINDOW:
                self._room.clear()
                await self._room.wait()
            await ready(self._fd, write=False)
            data = os.read(self._fd, ROOM)
            if not data:
                self._at_end = True
                break
            self._read += len(data)
            self._kept.append((self._read, data))
            await stream.send(data)
        await stream.send(None)

    async def _hear(self, stream: Stream) -> bool:
        async for item in stream:
            if item in (ALL, GONE):
                return True
            self._used = max(self._used, int(item))
            self._take_back(self._used)
            self._room.set()
        return False


class Inlet:
    """What comes from elsewhere for a process here.

    Args:
        fd: the writing end of its pipe, non-blocking; closed when all has been written, or by `close`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self._came = 0
        self._used = 0
        self._ended = False
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
                if self._ended:
                    return
                self._work.clear()
                await self._work.wait()
        except BrokenPipeError:
            self.nobody_reads()
        finally:
            os.close(self._fd)

    async def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._fd, view)
            except BlockingIOError:
                await ready(self._fd, write=True)
                continue
            view = view[written:]
        self._used += len(data)
        if self._used // TELL != (self._used - len(data)) // TELL:
            self._news.set()

    def nobody_reads(self) -> None:
        """Whoever writes is to be told so."""
        self._gone = True
        self._waiting.clear()
        self._news.set()

    async def close(self) -> None:
        """The part is over: whoever still writes is told that nobody reads any more."""
        self.nobody_reads()
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)


class Crossings:
    """All pipes of one part that lead to others.

    Args:
        broke: called when a stream cannot be kept up, with the reason.
    """

    def __init__(self, activation: Activation, elsewhere: Elsewhere, broke: Callable[[str], None]) -> None:
        self._activation = activation
        self._elsewhere = elsewhere
        self._broke = broke
        self._inlets: list[Inlet] = []
        self._leaving: list[tuple[int, int, int]] = []
        self._outlets: list[asyncio.Task[None]] = []
        self._meeting: asyncio.Task[list[dict[str, Any]]] | None = None
        #: The job's own end of each pipe, by the pipe's index, until it has them.
        self.ends: dict[int, int] = {}

    async def meet(self) -> list[dict[str, Any]]:
        """Make the pipes, and wait until the other parts are as far; what each part brought.

        Raises:
            WireError: they do not come.
            asyncio.CancelledError: also after `give_up`.
        """
        start, names = self._activation, {process.name for process in self._activation.processes}
        for pipe, stream, part in start.crossings:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # a user's pipes may be large only up to a sum
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ROOM)
            if start.pipes[pipe].writer in names:
                os.set_blocking(reading, False)
                self.ends[pipe] = writing
                self._leaving.append((reading, stream, part))
            else:
                os.set_blocking(writing, False)
                self.ends[pipe] = reading
                inlet = Inlet(writing)
                self._inlets.append(inlet)
                self._elsewhere.expect(start, stream, inlet)
        self._meeting = _task(self._elsewhere.meet(start))
        try:
            return await self._meeting
        finally:
            self._meeting = None

    def give_up(self) -> None:
        """Wait for the other parts no more."""
        if self._meeting is not None:
            self._meeting.cancel()

    def begin(self, cards: list[dict[str, Any]]) -> None:
        """The job has its ends: carry what it writes."""
        self._close_ends()
        start, elsewhere = self._activation, self._elsewhere
        for fd, stream, part in self._leaving:
            card = cards[part]

            async def join(card: dict[str, Any] = card, stream: int = stream) -> Stream:
                return await elsewhere.join(card, start, stream)

            self._outlets.append(_task(self._carry(Outlet(fd, join, elsewhere.patience))))
        self._leaving.clear()

    async def _carry(self, outlet: Outlet) -> None:
        try:
            await outlet.run()
        except StreamLost as error:
            self._broke(error.message)
            raise

    async def over(self) -> None:
        """The part's processes are gone: until what they wrote has come to the others.

        Raises:
            StreamLost: it has not.
        """
        for inlet in self._inlets:
            await inlet.close()
        self._elsewhere.forget(self._activation)
        for outlet in self._outlets:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(outlet)
            if outlet.cancelled():
                raise StreamLost("what a part of the job wrote did not come to another")

    async def abandon(self) -> None:
        """Nothing of this start is wanted any more."""
        self.give_up()
        self._close_ends()
        for fd, _, _ in self._leaving:
            os.close(fd)
        self._leaving.clear()
        for outlet in self._outlets:
            outlet.cancel()
        await asyncio.gather(*self._outlets, return_exceptions=True)
        for inlet in self._inlets:
            await inlet.close()
        self._elsewhere.forget(self._activation)

    def _close_ends(self) -> None:
        while self.ends:
            os.close(self.ends.popitem()[1])


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def ready(fd: int, *, write: bool) -> None:
    """Wait until a descriptor can be read or written."""
    loop = asyncio.get_running_loop()
    can: asyncio.Future[None] = loop.create_future()

    def set_can() -> None:
        if not can.done():
            can.set_result(None)

    (loop.add_writer if write else loop.add_reader)(fd, set_can)
    try:
        await can
    finally:
        (loop.remove_writer if write else loop.remove_reader)(fd)
