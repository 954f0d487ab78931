"""The handle of one native keeper: what the starter holds while its job runs. `native` does the sending."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.checkpoint.messages_table import Verb
from pool.starter.checkpointing import CheckpointReport, Image, LetGo, checkpoint, examine
from pool.starter.messages import SIGNAL_SHIFT
from pool.starter.outbox import Letter
from pool.starter.spec import EndReport, JobUsage, KeeperError, KeeperSpec

if TYPE_CHECKING:
    from pool.starter.native import NativeKeepers

#: Seconds for a keeper to answer.
ANSWER_TIME = 5.0


class NativeKeeper:
    """One job and its keeper; see `pool.starter.keeper.Keeper`."""

    __slots__ = (
        "_keepers",
        "cell",
        "ended",
        "ends",
        "forced",
        "generation",
        "id",
        "image",
        "kind",
        "letter",
        "number",
        "pid",
        "reused",
        "spec",
        "starting",
        "stream",
        "unwanted",
        "waits",
    )

    def __init__(self, keepers: NativeKeepers, spec: KeeperSpec, number: int, cell: int) -> None:
        loop = asyncio.get_running_loop()
        self.id = spec.id
        self.spec = spec
        self.pid = 0
        self.number = number
        self.cell = cell
        self.ended: asyncio.Future[EndReport] = loop.create_future()
        self.starting: asyncio.Future[None] = loop.create_future()
        self.unwanted = False
        #: The kind of its keeper, for use by a next job; whether the keeper waits for one; and its process when it had
        #: waited before.
        self.kind: tuple[object, ...] | None = None
        self.waits = False
        self.reused = 0
        #: The node has killed it, and with it the job.
        self.forced = False
        self.generation = keepers.generation
        #: Its checkpoint while it is restored from one.
        self.image: Image | None = None
        #: Its start while that has not been sent.
        self.letter: Letter | None = None
        #: A copy of the stream that it has to the submit machine's files, until it runs.
        self.stream: int | None = None
        #: Copies of its ends of pipes to other machines, by the pipe's index, until it runs.
        self.ends: dict[int, int] = {}
        self._keepers = keepers

    def __repr__(self) -> str:
        return f"<keeper {self.pid} of {self.id}>"

    async def suspend(self) -> None:
        """Stop all its processes."""
        self._keepers.send(self, Verb.SUSPEND)

    async def resume(self) -> None:
        """Let them go on."""
        self._keepers.send(self, Verb.RESUME)

    async def signal(self, number: int) -> None:
        """Send a signal to the job's first process."""
        self._keepers.send(self, Verb.SIGNAL, number)

    async def vacate(self, signal: int = 0) -> None:
        """Resume, send the soft signal or another, and after the grace kill all."""
        self._keepers.send(self, Verb.VACATE, int(self.spec.grace * 1e6) | signal << SIGNAL_SHIFT)

    async def kill(self) -> None:
        """Kill all its processes at once."""
        self._keepers.kill(self)

    def end_by_force(self) -> None:
        """Kill the keeper itself, which does not answer any more, and its job with it."""
        self._keepers.end_by_force(self)

    def renew(self, seconds: float) -> None:
        """The lease now ends so many seconds from now."""
        self._keepers.renew(self, seconds)

    async def usage(self) -> JobUsage:
        """The resources it has used so far, or in all when it has ended.

        Raises:
            KeeperError: the keeper does not answer.
        """
        answer = self._keepers.request_usage(self)
        either: set[asyncio.Future[Any]] = {answer, self.ended}
        try:
            await asyncio.wait(either, timeout=ANSWER_TIME, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if self.ended.done():
                end = self.ended.result()
                return JobUsage(end.user_cpu, end.system_cpu, end.max_rss, wall=end.wall)
            raise KeeperError(f"cannot read the usage of {self.id}: its keeper does not answer", retry=True)
        finally:
            answer.cancel()

    async def examine(self) -> tuple[str, ...]:
        """The parts of it that could not be saved, a line each; it is not stopped for it.

        Raises:
            CheckpointFailed: it could not be looked at.
        """
        return await examine(self._keepers, self)

    async def checkpoint(
        self,
        directory: Path,
        *,
        stop: bool = False,
        taken: bytes | None = None,
        loose: bool = False,
        parent: Path | None = None,
        mark: int = 0,
        carry: bool = False,
        let_go: LetGo | None = None,
    ) -> CheckpointReport:
        """Write an image of it to a directory that must not exist; with `stop` it is killed with the last of it.

        Args:
            taken: its scratch directory belongs to the image, and this of it is known already (`freezing`).
            loose: it need not be on the disk when this returns.
            parent: the image made just before, of which what has not changed is taken over where the kernel can tell.
            mark: the submit machine notes the moment under this number (pool.remoteio); 0 for not.
            carry: what is mapped of programs and libraries too, for a machine that has others.
            let_go: called where the job runs on before the image is written, with what the report calls `held`.

        Raises:
            CheckpointFailed: there is no image, and the job is as it was.
        """
        wanted: dict[str, Any] = {"taken": taken, "loose": loose, "parent": parent, "mark": mark, "carry": carry}
        wanted["let_go"] = let_go
        return await checkpoint(self._keepers, self, directory, stop=stop, **wanted)

    def remote(self, fd: int) -> None:
        """Give it a stream to the submit side's files in place of the one before; the caller's copy stays the
        caller's.
        """
        self._keepers.hand_stream(self, fd)

    def wire(self, fd: int) -> None:
        """Have it send a packet socket of the job's own network on a socket; the caller's copy stays the caller's.

        A message of 4 bytes comes: 0 and the packet socket, or an errno.
        """
        self._keepers.hand(self, Verb.WIRE, 0, fd)

    def connect(self, port: int, fd: int) -> None:
        """Have it connect to a port of the job in its own network, and send the connection as `wire` does.

        The connection may not be made yet when it comes; without a network of the job's own no answer comes.
        """
        self._keepers.hand(self, Verb.CONNECT, port, fd)

    def shell(self, fd: int) -> None:
        """Have it open a shell in the job, and talk about it on a socket (`pool.starter.shells`)."""
        self._keepers.hand(self, Verb.SHELL, 0, fd)

    def keep_stream(self, fd: int | None) -> None:
        """Keep a copy of this stream in place of the one before; None for none."""
        copy = os.dup(fd) if fd is not None else None
        if self.stream is not None:
            os.close(self.stream)
        self.stream = copy

    def close_ends(self) -> None:
        """It has its own ends of pipes to other machines."""
        while self.ends:
            os.close(self.ends.popitem()[1])

    async def forget(self) -> None:
        """The end was taken note of: drop the report.

        Raises:
            KeeperError: it has not ended, or the disk refuses.
        """
        self._keepers.release(self)
