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
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from pool.jobs.activation import Activation
from pool.starter.flows import Flows, Outflow
from pool.starter.inlet import Inlet
from pool.starter.outlet import Outlet
from pool.starter.stream import ROOM, Stream, StreamLost

#: What each part brought to the meeting; None for one that had ended before the checkpoint that the others go on from.
Cards = list[dict[str, Any] | None]


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
