"""Keepers: the processes that look after one running job each, as the starter sees them.

Roles get `Keepers` and `Keeper`. `NativeKeepers` is the real one (a C program, pool/checkpoint), and `pool.testing` has
one that only behaves so. Policy never lives here: a keeper starts, signals, stops and reports as commanded, and by
itself only ends a job whose lease ran out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pool.starter.checkpointing import CheckpointFailed, CheckpointReport, LetGo
from pool.starter.handle import NativeKeeper
from pool.starter.native import NativeKeepers
from pool.starter.spec import (
    NO_ENDS,
    Abilities,
    EndCause,
    EndReport,
    JobUsage,
    KeeperError,
    KeeperSpec,
    StartFailed,
)

__all__ = [
    "Abilities",
    "EndCause",
    "CheckpointFailed",
    "CheckpointReport",
    "EndReport",
    "Keeper",
    "KeeperError",
    "KeeperSpec",
    "Keepers",
    "NativeKeeper",
    "NativeKeepers",
    "StartFailed",
    "JobUsage",
]


class Keeper(Protocol):
    """One job that was started. Everything but `forget` does nothing once it has ended."""

    id: str
    spec: KeeperSpec
    #: Of the keeper on this machine; the job's processes descend from it.
    pid: int
    #: Resolves when its program runs: `pid` is known then.
    starting: asyncio.Future[None]
    #: Resolves when no process of the job is left.
    ended: asyncio.Future[EndReport]

    async def suspend(self) -> None:
        """Stop all its processes."""

    async def resume(self) -> None:
        """Let them go on."""

    async def signal(self, number: int, /) -> None:
        """Send a signal to the job's first process."""

    async def vacate(self, signal: int = 0, /) -> None:
        """Resume, send the soft signal or another, and after the grace kill all."""

    async def kill(self) -> None:
        """Kill all its processes at once."""

    def end_by_force(self) -> None:
        """Kill the keeper itself, which does not answer any more, and its job with it."""

    def renew(self, seconds: float, /) -> None:
        """The lease now ends so many seconds from now."""

    async def usage(self) -> JobUsage:
        """The resources it has used so far.

        Raises:
            KeeperError: the keeper does not answer.
        """

    async def examine(self) -> tuple[str, ...]:
        """The parts of it that could not be saved, a line each; it is not stopped for it.

        Raises:
            CheckpointFailed: it could not be looked at.
        """

    async def checkpoint(
        self,
        directory: Path,
        /,
        *,
        stop: bool = False,
        taken: bytes | None = None,
        loose: bool = False,
        parent: Path | None = None,
        mark: int = 0,
        carry: bool = False,
        let_go: LetGo | None = None,
    ) -> CheckpointReport:
        """Write an image of the job to a directory that must not exist; with `stop` it is killed with the last of it.

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

    def remote(self, fd: int, /) -> None:
        """Give it a stream to the submit side's files in place of the one before; the caller's copy stays the
        caller's.
        """

    def wire(self, fd: int, /) -> None:
        """Have it send a packet socket of the job's own network on a socket: see `NativeKeeper.wire`."""

    def connect(self, port: int, fd: int, /) -> None:
        """Have it send a connection to a port of the job in its own network: see `NativeKeeper.connect`."""

    def shell(self, fd: int, /) -> None:
        """Have it open a shell in the job: see `NativeKeeper.shell`."""

    async def forget(self) -> None:
        """The end was taken note of: drop the report. Only after `ended`."""


class Keepers(Protocol):
    """All keepers of one node."""

    abilities: Abilities

    async def open(self) -> Sequence[Keeper]:
        """Begin, and find those of an earlier node: running, or ended and not yet forgotten."""

    async def start(
        self,
        spec: KeeperSpec,
        /,
        *,
        image: Path | None = None,
        remote: int | None = None,
        ends: Mapping[int, int] = NO_ENDS,
        asked: Callable[[Keeper], None] | None = None,
    ) -> Keeper:
        """Start a job, from a checkpoint's directory where one is given; returns when its program runs.

        Args:
            remote: the first stream to the submit machine's files, for a spec with `remote`; see `Keeper.remote`.
            ends: the job's end of each pipe that leads to another machine, by the pipe's index in the spec.
            asked: called with the keeper before its program runs: its lease is to be renewed while it starts.

        Raises:
            StartFailed: it does not, and nothing of it is left.
        """

    async def close(self, *, kill: bool) -> None:
        """End the node's part. Jobs run on in their keepers unless they are to be killed."""
