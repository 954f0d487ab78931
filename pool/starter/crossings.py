"""A job's pipes to other machines: bytes from a pipe here to a pipe there, all of them, once, in order (G8).

    process | pipe | Outlet ~~~ stream between the nodes ~~~ Inlet | pipe | process

Each process has a pipe of the kernel's, and finds end of file and SIGPIPE on it as within one machine: when the
writers are done and every byte has been read the reader's pipe is closed, and when nobody reads any more the writer's
is. An outlet keeps what has not been taken out of the other side's memory, at most `WINDOW` bytes, so that a stream
that breaks goes on in another one from the byte that came last, and so that a delay between the machines costs a
delay and no rate. Where that cannot be the part has to be stopped: a byte may be missing.

A checkpoint of all parts is one (VS 5.3): first every outlet everywhere takes nothing more out of its pipe (`hold`),
then each part in its own time stands still, its inlets with it (`freeze`, `frozen`), then all go on. So every reader
has had less than its writer's outlet had taken, and the outlet has what is between the two (`pool.starter.flows`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.starter.flows import Flows, Inflow, Outflow

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


#: What each part brought to the meeting; None for one that had ended before the checkpoint that the others go on from.
Cards = list[dict[str, Any] | None]


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

    async def meet(self, activation: Activation) -> Cards:
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
                if self._ended and not self._waiting:
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


class Crossings:
    """All pipes of one part that lead to others.

    Args:
        broke: called when a stream cannot be kept up, with the reason.
    """

    def __init__(self, activation: Activation, elsewhere: Elsewhere, broke: Callable[[str], None]) -> None:
        self._activation = activation
        self._elsewhere = elsewhere
        self._broke = broke
        self._inlets: dict[int, Inlet] = {}
        self._leaving: list[tuple[int, int, int, int]] = []
        #: By the stream's number, with the pipe's index.
        self._outlets: dict[int, tuple[int, Outlet]] = {}
        self._carrying: list[asyncio.Task[None]] = []
        self._meeting: asyncio.Task[Cards] | None = None
        self._before = Flows()
        self._flows = Flows()
        #: The job's own end of each pipe, by the pipe's index, until it has them.
        self.ends: dict[int, int] = {}

    async def meet(self, owner: tuple[int, int] | None = None, image: Path | None = None) -> Cards:
        """Make the pipes, and wait until the other parts are as far; what each part brought.

        Args:
            owner: whose the pipes are; a process may open its own anew. None: the node's user's.
            image: the checkpoint that the part goes on from.

        Raises:
            ImageDamaged: the checkpoint makes no sense.
            WireError: they do not come.
            asyncio.CancelledError: also after `give_up`.
        """
        start, names = self._activation, {process.name for process in self._activation.processes}
        if image is not None:
            self._before = await asyncio.to_thread(Flows.load, image)
        for pipe, stream, part in start.crossings:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            if owner is not None:
                os.fchown(reading, *owner)
            with contextlib.suppress(OSError):  # a user's pipes may be large only up to a sum
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ROOM)
            if start.pipes[pipe].writer in names:
                os.set_blocking(reading, False)
                self.ends[pipe] = writing
                self._leaving.append((reading, pipe, stream, part))
            else:
                os.set_blocking(writing, False)
                self.ends[pipe] = reading
                inlet = self._inlets[stream] = Inlet(writing, self._before.into.get(stream))
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

    def begin(self, cards: Cards) -> None:
        """The job has its ends: carry what it writes."""
        self._close_ends()
        start, elsewhere = self._activation, self._elsewhere
        for fd, pipe, stream, part in self._leaving:
            card, before = cards[part] or {}, self._before.out.get(stream)
            if cards[part] is None:
                before = Outflow(over=True)  # who read it had ended

            async def join(card: dict[str, Any] = card, stream: int = stream) -> Stream:
                return await elsewhere.join(card, start, stream)

            outlet = Outlet(fd, join, elsewhere.patience, before)
            self._outlets[stream] = pipe, outlet
            self._carrying.append(_task(self._carry(outlet)))
        self._leaving.clear()
        self._before = Flows()
        for inlet in self._inlets.values():
            inlet.go()

    async def hold(self) -> None:
        """Take nothing more of what the job writes for others, until `go`."""
        await asyncio.gather(*(outlet.hold() for _, outlet in self._outlets.values()))

    def freeze(self) -> None:
        """Give the job nothing more of what others write: it is about to stand still."""
        for inlet in self._inlets.values():
            inlet.freeze()

    def frozen(self, held: frozenset[int]) -> None:
        """The job stands still for its image, or did since `freeze`: note where its pipes are.

        Args:
            held: the indexes of the pipes that processes in the image hold.
        """
        out = {stream: outlet.frozen(pipe in held) for stream, (pipe, outlet) in self._outlets.items()}
        self._flows = Flows(out, {stream: inlet.frozen() for stream, inlet in self._inlets.items()})

    def thaw(self) -> None:
        """The job does not stand still any more: give it what comes again."""
        for inlet in self._inlets.values():
            inlet.go()

    def save(self, directory: Path) -> None:
        """Lay what `frozen` found beside the image. Blocks on the disk."""
        self._flows.save(directory)
        self._flows = Flows()

    def go(self) -> None:
        """Go on after `hold`."""
        for _, outlet in self._outlets.values():
            outlet.go()

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
        for inlet in self._inlets.values():
            await inlet.close()
        self._elsewhere.forget(self._activation)
        self.go()
        for carrying in self._carrying:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(carrying)
            if carrying.cancelled():
                raise StreamLost("what a part of the job wrote did not come to another")

    async def abandon(self) -> None:
        """Nothing of this start is wanted any more."""
        self.give_up()
        self._close_ends()
        for fd, *_ in self._leaving:
            os.close(fd)
        self._leaving.clear()
        for carrying in self._carrying:
            carrying.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        for inlet in self._inlets.values():
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
