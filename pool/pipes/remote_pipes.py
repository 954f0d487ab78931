"""The pipes of one part of a job that lead to other machines: all bytes, once, in order (G8).

    process | pipe | Sender ~~~ stream between the nodes ~~~ Receiver | pipe | process

Each process has a pipe of the kernel, and sees end of file and SIGPIPE as within one machine. The reader's pipe is
closed when the writers have closed theirs and every byte was read; the writer's pipe is closed when no reader is left.
A sender keeps the bytes that the other side has not used yet, at most `WINDOW`. So a broken stream continues in a new
one after the last byte that arrived, and a delay between the machines does not limit the rate. If a stream cannot be
restored, the part must be stopped, because bytes may be missing.

A checkpoint covers all parts (VS 5.3). First every sender stops reading its pipe (`pause`); then each part is frozen
with its receivers (`freeze`, `frozen`); then all go on. So no reader has more bytes than its writer's sender had read,
and the sender has the bytes between the two positions (`pool.pipes.positions`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pool.jobs.activation import Activation
from pool.network.closing import tables_of, wait_until_closed
from pool.network.rooms import JobNetworks, JobRoom, WiredKeeper
from pool.pipes.positions import PipePositions, SenderPosition
from pool.pipes.protocol import ROOM, PipeStream, StreamLost
from pool.pipes.receiver import Receiver
from pool.pipes.sender import Sender

#: The data of each part for the others; None for a part that had ended before the checkpoint.
Cards = list[dict[str, Any] | None]


class OtherParts(Protocol):
    """The other parts of a job, as a part waits for them and connects to them."""

    @property
    def patience(self) -> float:
        """Seconds for which another part may be out of reach."""

    async def wait_for_parts(self, activation: Activation) -> Cards:
        """Wait until every part can start; return the card of each."""

    async def ask_third(self, activation: Activation, other: str, ticket: str) -> str:
        """Ask for a node that carries a link to another machine of the job; its name."""

    async def reach(self, activation: Activation, parts: Sequence[int], direct: bool) -> tuple[socket.socket, bytes]:
        """Connect to the machine of these parts, which is in another pool, directly or by the pools' worlds; the keys
        of the link."""

    async def join(self, part: int, card: dict[str, Any], activation: Activation, stream: int) -> PipeStream:
        """Open a stream to the part with this number and card."""

    def is_direct(self, activation: Activation, part: int) -> bool:
        """Whether there is a direct connection to a part in another pool."""

    def expect(self, activation: Activation, stream: int, receiver: Receiver) -> None:
        """Give the bytes that arrive for this stream to the receiver."""

    def forget(self, activation: Activation) -> None:
        """Expect no more bytes for this start; a writer is answered that no reader is left."""


class NetworkedKeeper(WiredKeeper, Protocol):
    """The keeper of a part, in the job's network.

    Attributes:
        pid: its process; 0 while it starts.
    """

    pid: int


class RemotePipes:
    """All pipes of one part that lead to others.

    Args:
        elsewhere: the other parts.
        broke: called with the reason when a stream is lost for good.
        network: the private networks of this machine, if the job has one.
    """

    def __init__(
        self,
        activation: Activation,
        elsewhere: OtherParts,
        broke: Callable[[str], None],
        network: JobNetworks | None = None,
    ) -> None:
        self._activation = activation
        self._elsewhere = elsewhere
        self._broke = broke
        self._network = network
        self._cards: Cards = []
        self._keeper: NetworkedKeeper | None = None
        self._restores = False
        self._inlets: dict[int, Receiver] = {}
        self._leaving: list[tuple[int, int, int, int]] = []
        #: By stream number: the pipe's index, and its sender.
        self._outlets: dict[int, tuple[int, Sender]] = {}
        self._carrying: list[asyncio.Task[None]] = []
        self._meeting: asyncio.Task[Cards] | None = None
        self._before = PipePositions()
        self._flows = PipePositions()
        #: By number, the node of each part, when they have met.
        self.hosts: tuple[str, ...] = ()
        #: By pipe index: the end for the job's process, until the job has it.
        self.ends: dict[int, int] = {}

    async def exchange_cards(self, owner: tuple[int, int] | None = None, image: Path | None = None) -> Cards:
        """Create the pipes, wait until all parts have theirs, and return the card of each part.

        Args:
            owner: user and group of the pipes, so that a process may reopen its own; None: the node's user.
            image: the checkpoint from which the part restarts.

        Raises:
            ImageDamaged: the checkpoint makes no sense.
            WireError: the other parts do not come.
            asyncio.CancelledError: also after `cancel_meeting`.
        """
        start, names = self._activation, self._activation.ends_here
        self._restores = image is not None
        if image is not None:
            self._before = await asyncio.to_thread(PipePositions.load, image)
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
                receiver = self._inlets[stream] = Receiver(writing, self._before.into.get(stream))
                self._elsewhere.expect(start, stream, receiver)
        self._meeting = _task(self._elsewhere.wait_for_parts(start))
        try:
            cards = self._cards = await self._meeting
            self.hosts = tuple(str((card or {}).get("node", "")) for card in cards)
            return cards
        finally:
            self._meeting = None

    def before_start(self, keeper: NetworkedKeeper) -> None:
        """The part's keeper is about to start it: join the job's private network, or when a restored part runs.

        A packet that came earlier would find no connection, and be answered by a reset.

        Raises:
            CardsDiffer: other parts of the job have none.
        """
        self._keeper = keeper
        if self._network is not None and not self._restores:
            self._network.enter(self._activation, self._cards, keeper, self._ask_third, self._reach)

    async def _ask_third(self, other: str, ticket: str) -> str:
        return await self._elsewhere.ask_third(self._activation, other, ticket)

    async def _reach(self, parts: Sequence[int], direct: bool) -> tuple[socket.socket, bytes]:
        return await self._elsewhere.reach(self._activation, parts, direct)

    @property
    def room(self) -> JobRoom | None:
        """The job's private network on this machine; None without one, and before the part runs."""
        return self._network.room_of(self._activation) if self._network is not None else None

    @property
    def ways(self) -> dict[str, bool]:
        """By machine in another pool with which there are pipes, whether they go directly; else by the worlds."""
        found = {}
        for _, _, part in self._activation.crossings:
            card = self._cards[part] if part < len(self._cards) else None
            if card is not None and not card.get("address"):
                found[str(card.get("node", ""))] = self._elsewhere.is_direct(self._activation, part)
        return found

    @property
    def has_network(self) -> bool:
        """Whether the job has a private network, whose packets this node carries."""
        return self._network is not None

    def cancel_meeting(self) -> None:
        """Stop waiting for the other parts."""
        if self._meeting is not None:
            self._meeting.cancel()

    def begin(self, cards: Cards) -> None:
        """Start to send: the job has its ends of the pipes."""
        self._close_ends()
        if self._network is not None and self._restores and self._keeper is not None:
            self._network.enter(self._activation, cards, self._keeper, self._ask_third, self._reach)
        start, elsewhere = self._activation, self._elsewhere
        for fd, pipe, stream, part in self._leaving:
            card, before = cards[part] or {}, self._before.out.get(stream)
            if cards[part] is None:
                before = SenderPosition(over=True)  # the reader had ended

            async def join(part: int = part, card: dict[str, Any] = card, stream: int = stream) -> PipeStream:
                return await elsewhere.join(part, card, start, stream)

            sender = Sender(fd, join, elsewhere.patience, before)
            self._outlets[stream] = pipe, sender
            self._carrying.append(_task(self._forward(sender)))
        self._leaving.clear()
        self._before = PipePositions()
        for receiver in self._inlets.values():
            receiver.resume()

    async def pause(self) -> None:
        """Stop reading the pipes of the job's writers, until `resume`."""
        await asyncio.gather(*(sender.pause() for _, sender in self._outlets.values()))
        room, keeper = self.room, self._keeper
        if room is not None:
            if keeper is not None and keeper.pid:
                await wait_until_closed(partial(tables_of, keeper.pid))
            try:
                await room.hold(self._activation.part)
            except (OSError, ValueError, TimeoutError) as error:
                raise StreamLost("the job's network cannot be held for its checkpoint: its relay is silent") from error

    def freeze(self) -> None:
        """Stop writing to the pipes of the job's readers: the job is about to be frozen."""
        for receiver in self._inlets.values():
            receiver.freeze()

    def frozen(self, held: frozenset[int]) -> None:
        """Record the positions of all pipes: the job is frozen for its image, or was since `freeze`.

        Args:
            held: the indexes of the pipes that processes in the image hold.
        """
        out = {stream: sender.frozen(pipe in held) for stream, (pipe, sender) in self._outlets.items()}
        self._flows = PipePositions(out, {stream: receiver.frozen() for stream, receiver in self._inlets.items()})

    def thaw(self) -> None:
        """Write to the pipes of the job's readers again: the job runs."""
        for receiver in self._inlets.values():
            receiver.resume()

    def save(self, directory: Path) -> None:
        """Write the positions from `frozen` beside the image. Blocks on the disk."""
        self._flows.save(directory)
        self._flows = PipePositions()

    def resume(self) -> None:
        """Read the pipes again after `pause`."""
        for _, sender in self._outlets.values():
            sender.resume()
        if (room := self.room) is not None:
            room.release(self._activation.part)

    async def _forward(self, sender: Sender) -> None:
        try:
            await sender.run()
        except StreamLost as error:
            self._broke(error.message)
            raise

    async def finish(self) -> None:
        """Wait until the other parts have all bytes; the part's processes have ended.

        Raises:
            StreamLost: bytes were lost on the way.
        """
        for receiver in self._inlets.values():
            await receiver.close()
        self._elsewhere.forget(self._activation)
        self.resume()
        for carrying in self._carrying:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(carrying)
            if carrying.cancelled():
                raise StreamLost("what a part of the job wrote did not come to another")
        if (room := self.room) is not None:
            await room.finish(self._activation.part)

    async def abandon(self) -> None:
        """Drop all streams and pipes of this start."""
        self.cancel_meeting()
        self._close_ends()
        for fd, *_ in self._leaving:
            os.close(fd)
        self._leaving.clear()
        for carrying in self._carrying:
            carrying.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        for receiver in self._inlets.values():
            await receiver.close()
        self._elsewhere.forget(self._activation)
        if self._network is not None:
            await self._network.leave(self._activation)

    def _close_ends(self) -> None:
        while self.ends:
            os.close(self.ends.popitem()[1])


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)
