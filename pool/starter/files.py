"""A running job's way to its owner's files: connections between its keeper and its submit side, one after the other
(B1, B2).

The keeper's file system and the submit side speak `pool.remoteio.frames`; this module carries the bytes. Where a
connection is lost another one is made, for as long as the job lives. The job waits meanwhile, and its lease bounds
that. Before the job starts, `pool.remoteio.direct` finds out which trees this machine sees for itself. Where that is
all of them the job needs no connection, and the submit side hears so before the job starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from pool.errors import PoolError
from pool.remoteio import direct
from pool.remoteio.frames import VERSION, version_mismatch
from pool.remoteio.relay import forward
from pool.remoteio.trees import is_below
from pool.starter.keeper import Keeper
from pool.starter.place import StartRefused
from pool.starter.spec import KeeperSpec

#: Bytes between a keeper and its node that are on their way at most.
ROOM = 1 << 20
#: Seconds until a lost connection is tried again, the first time and at most.
AGAIN, SELDOM = 0.1, 2.0
#: The way out where the two sides do not understand each other.
NEARER = "run versions of poolnode on both machines that are nearer to each other"
log = logging.getLogger("pool.starter")


class RemoteAccess(Protocol):
    """How a stream to the job's submit side is had."""

    async def remote_io(self, run: int, again: bool) -> Any: ...


@dataclass(frozen=True, slots=True)
class VisibleFiles:
    """The part of the submit side's files that a job sees.

    Attributes:
        trees: paths that its submit side answers for.
        binds: (directory of this machine, path) that it opens directly.
        home: its owner's home directory there.
        static: those of the trees that it only reads, and where its submit side reports changes.
    """

    trees: tuple[str, ...]
    binds: tuple[tuple[str, str], ...]
    home: str
    static: frozenset[str] = frozenset()

    @property
    def static_bits(self) -> int:
        """Bit i for a static tree i."""
        return sum(1 << number for number, path in enumerate(self.trees) if path in self.static)

    @classmethod
    def of(cls, spec: KeeperSpec) -> VisibleFiles:
        """The files that a job sees, by the order to its keeper."""
        static = frozenset(path for number, path in enumerate(spec.remote) if spec.static_remotes >> number & 1)
        return cls(spec.remote, spec.binds, spec.env.get("HOME", "/"), static)


class StartFiles:
    """The files of one start.

    Args:
        how: what shows them to the job, for its log: fuse, or "notification, as ..." with why not by fuse.
    """

    def __init__(self, name: str, run: int, home: RemoteAccess, how: str = "fuse") -> None:
        self._name = name
        self._run = run
        self._submit_side = home
        self._how = how
        self._task: asyncio.Task[None] | None = None
        self._keeper: asyncio.Future[Keeper] = asyncio.get_running_loop().create_future()

    async def begin(self, uid: int, gid: int, hidden: Iterable[str]) -> tuple[VisibleFiles, socket.socket | None]:
        """Connect to the submit side: what the job sees, and its keeper's end of the connection, if it needs one.

        Args:
            uid, gid: whom the job runs as here.
            hidden: directories of this machine that it must not see.

        Raises:
            WireError, PoolError: the submit side cannot be reached, or refuses.
        """
        stream, facts = await self._open(again=False)
        try:
            found = []
            if facts["probes"] and uid == int(facts["uid"]):  # a stranger to these files opens none of them directly
                found = await asyncio.to_thread(direct.find, facts["probes"], uid, gid)
            seen = seen_of(facts, found, hidden)
            await stream.send(["found", [list(bind) for bind in seen.binds], self._how])
            if not seen.trees:
                await _drain(stream)
                return seen, None
        except BaseException:
            stream.abort()
            raise
        ours, theirs = _pair()
        self._task = asyncio.get_running_loop().create_task(self._run_on(stream, ours))
        return seen, theirs

    def serve(self, keeper: Keeper) -> None:
        """Connections go to this keeper from now on. It need not run its program yet: to start it, it opens files of
        the submit side's, and if the first connection is lost meanwhile, it waits for the next one.
        """
        if self._keeper.done():
            self.connect(keeper)
        else:
            self._keeper.set_result(keeper)

    def connect(self, keeper: Keeper) -> None:
        """Make a connection for a keeper that has none: it outlived its node, or starts its program once more."""
        loop = asyncio.get_running_loop()
        if self._task is not None:
            self._task.cancel()
        self._keeper = loop.create_future()
        self._keeper.set_result(keeper)
        self._task = loop.create_task(self._run_on(None, None)) if keeper.spec.remote else None

    async def end(self) -> None:
        """Nobody asks any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run_on(self, stream: Any, ours: socket.socket | None) -> None:
        pause = AGAIN
        while True:
            try:
                if stream is None or ours is None:
                    stream, ours = await self._reopen(self._keeper.result())
                try:
                    await forward(stream, ours)
                finally:
                    stream.abort()
                    stream = None
                pause = AGAIN
            except (PoolError, OSError, EOFError) as error:
                log.info("a job waits for its files", extra={"job": self._name, "why": str(error)})
            keeper = await asyncio.shield(self._keeper)
            await asyncio.wait([keeper.ended], timeout=pause)
            if keeper.ended.done():
                return
            pause = min(pause * 2, SELDOM)

    async def _reopen(self, keeper: Keeper) -> tuple[Any, socket.socket]:
        stream, _ = await self._open(again=True)
        try:
            await stream.send(["found", [], self._how])
            ours, theirs = _pair()
            with theirs:
                keeper.remote(theirs.fileno())
        except BaseException:
            stream.abort()
            raise
        return stream, ours

    async def _open(self, *, again: bool) -> tuple[Any, dict[str, Any]]:
        stream = await self._submit_side.remote_io(self._run, again)
        try:
            _, facts = await stream.receive()
            if (other := facts.get("frames", 1)) != VERSION:
                text = f"cannot reach the job's files on its submit machine: {version_mismatch(other)}"
                raise StartRefused(text, where="input", hint=NEARER)
        except BaseException:
            stream.abort()
            raise
        return stream, facts


def seen_of(facts: dict[str, Any], found: Iterable[direct.Direct], hidden: Iterable[str]) -> VisibleFiles:
    """The trees that a job sees: those of the submit side, except those that are there directly and show nothing that
    is hidden. Pure.
    """
    hidden = tuple(hidden)
    binds = [
        (here, home) for here, home in found if not any(is_below(path, here) or is_below(here, path) for path in hidden)
    ]
    trees = [str(path) for path, _ in facts["trees"]]
    left = tuple(tree for tree in trees if not any(is_below(tree, home) for _, home in binds))
    given = facts.get("static")
    static = frozenset(path for path in given if path in left) if isinstance(given, list) else frozenset()
    return VisibleFiles(left, tuple(binds), str(facts.get("home") or "/"), static)


async def _drain(stream: Any) -> None:
    """Send no more, and wait until the submit side has taken in all that it was sent."""
    await stream.finish()
    async for _ in stream:
        pass


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
    ours.setblocking(False)
    return ours, theirs
