"""Long work of users, done in slices between which the loop is free, each user's in turn.

    async with turns.work("alice", "list jobs") as turn:
        for job in jobs:
            if turn.is_over:
                await turn.pause()
            ...
            await turn.send(stream, batch)
            await turn.wait_outside(answer)           # what waits holds nobody up

Where a thousand tasks go on at once, each with a short piece of work, each waits for its moment:

    await turns.moment("alice", "claim slots")
    ...                                              # up to the next thing that is waited for

One slice at a time is done in the whole process, however many ask: between two of them the loop looks at its sockets,
so that a short question is answered within a few slices. The users who want one take turns; whoever asks a thousand
things at once waits for himself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

from pool.errors import PoolError
from pool.wire import Stream

T = TypeVar("T")
#: Seconds of a slice, and of work in all that is given up when it takes longer.
SLICE, LONGEST = 0.005, 5.0
#: After a slice that took much longer nobody begins another for so many times as long, and at most so many seconds.
REST, LONGEST_REST = 2.0, 0.5
#: Moments granted without a wait in one turn of the loop, where nobody else waits: a few jobs at a time need no queue.
FREE = 8
#: Things done in a slice at most, where a clock stands still meanwhile.
MANY = 2000


class WorkTurn:
    """One piece of long work: whose it is and what it does.

    Attributes:
        spent: seconds that its slices took until now.
    """

    __slots__ = ("_count", "_loop", "_since", "_turns", "_used", "spent", "what", "who")

    def __init__(self, turns: WorkTurns, who: str, what: str) -> None:
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._since = self._used = 0.0
        self._count = 0
        self.who = who
        self.what = what
        self.spent = 0.0

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn now; asked before each thing that is done."""
        self._count += 1
        return self._loop.time() - self._since > SLICE or self._count > MANY

    async def pause(self) -> None:
        """Let everybody else go first."""
        self.end()
        await self.begin()

    async def wait_outside(self, waiting: Awaitable[T]) -> T:
        """Wait for something, with the turn given up meanwhile."""
        self.end()
        found = await waiting
        await self.begin()
        return found

    async def send(self, stream: Stream, item: object) -> None:
        """Send an item of long work; the turn is given up only where the other side has no room for it.

        Raises:
            WireError: as `Stream.send`.
        """
        if stream.has_room:
            await stream.send(item)
        else:
            await self.wait_outside(stream.send(item))

    async def begin(self) -> None:
        """Wait for a slice."""
        await self._turns.acquire(self)
        self._since, self._count = self._loop.time(), 0
        self._used = self._turns.ticks()

    def end(self) -> None:
        """Give the slice up."""
        if self._turns.holder is self:
            self.spent += self._loop.time() - self._since
            self._turns.release(self._turns.ticks() - self._used)


class WorkTurns:
    """The order of long work.

    Args:
        ticks: seconds of processor time, by which is judged whether a slice was too long; the loop's time by default,
            which goes on while other processes have the processor.

    Attributes:
        holder: whose slice it is.
    """

    def __init__(self, ticks: Callable[[], float] | None = None) -> None:
        self.ticks = ticks or (lambda: asyncio.get_running_loop().time())
        self.holder: WorkTurn | None = None
        self._resting = False
        self._free = FREE
        self._moments: dict[str, deque[asyncio.Future[None]]] = {}
        self._granting: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, deque[tuple[WorkTurn, asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def work(self, who: str, what: str) -> AsyncIterator[WorkTurn]:
        """Long work for a user; begins with a slice."""
        turn = WorkTurn(self, who, what)
        await turn.begin()
        try:
            yield turn
        finally:
            turn.end()

    async def moment(self, who: str, what: str) -> None:
        """Wait for a moment for a short piece of work: all that the caller does until it next waits.

        The moments of one user are granted in the order in which they were asked for, several in a slice, each in a
        turn of the loop of its own. Things may have changed when this returns.
        """
        loop = asyncio.get_running_loop()
        if self._free and not self._moments and self.holder is None and not self._resting:
            if self._free == FREE:
                loop.call_soon(self._renew)
            self._free -= 1
            return
        line = self._moments.get(who)
        if line is None:
            line = self._moments[who] = deque()
            task = loop.create_task(self._grant(who, what, line))
            self._granting.add(task)
            task.add_done_callback(self._granting.discard)
        granted: asyncio.Future[None] = loop.create_future()
        line.append(granted)
        await granted

    def _renew(self) -> None:
        self._free = FREE

    async def _grant(self, who: str, what: str, line: deque[asyncio.Future[None]]) -> None:
        """Grant the moments that a user's tasks wait for, until there are no more."""
        turn = WorkTurn(self, who, what)
        await turn.begin()
        while line:
            if turn.is_over:
                self.release()  # without a rest: the time was that of all that the loop did meanwhile
                await turn.begin()
            granted = line.popleft()
            if not granted.done():
                granted.set_result(None)
                await asyncio.sleep(0)  # the task works now
        del self._moments[who]
        self.release()

    async def acquire(self, turn: WorkTurn) -> None:
        """Wait until it is this one's turn."""
        if self.holder is None and not self._resting:
            self.holder = turn
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(turn.who, deque()).append((turn, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if self.holder is turn:
                self.release()
            raise

    def release(self, took: float = 0.0) -> None:
        """The slice is over; the next begins after the loop has looked around.

        A thing may have taken much longer than a slice (a dear expression): then the loop is left to others for longer.
        """
        self.holder = None
        self._resting = True
        loop = asyncio.get_running_loop()
        if took > 2 * SLICE:
            loop.call_later(min(REST * took, LONGEST_REST), self._next)
        else:
            loop.call_soon(self._next)

    def _next(self) -> None:
        self._resting = False
        while self._waiting:
            who = next(iter(self._waiting))
            line = self._waiting.pop(who)
            turn, granted = line.popleft()
            if line:
                self._waiting[who] = line  # behind all other users
            if not granted.done():
                self.holder = turn
                granted.set_result(None)
                return


async def run_in_slices(
    work: Generator[None, None, T], what: str, turns: WorkTurns, who: str, longest: float = LONGEST
) -> T:
    """The result of the work.

    Args:
        what: what is being done, for the message.
        who: for whom.

    Raises:
        PoolError: it takes longer than `longest` seconds of this process's time.
    """
    try:
        async with turns.work(who, what) as turn:
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    found: T = end.value
                    return found
                if turn.is_over:
                    await turn.pause()
                    if turn.spent > longest:
                        raise PoolError(
                            f"cannot {what}: its expressions take too long to evaluate",
                            hint="write simpler requirements",
                        )
    finally:
        work.close()


async def in_slices(turn: WorkTurn, steps: Generator[None, None, T]) -> T:
    """Do work that comes in small steps; others have their turn when a slice is over.

    Args:
        steps: yields after each of its steps, and returns the result.
    """
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        if turn.is_over:
            await turn.pause()
