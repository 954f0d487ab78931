"""One start of a job on this machine: the facts that the parts of its starter share, and its way to the submit side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pool.images import Assembly, ImageStore, Manifest
from pool.jobs.activation import Activation, FileMode
from pool.network.rooms import JobRoom
from pool.pipes.remote_pipes import RemotePipes
from pool.safe_directory import SafeDirectory
from pool.starter.job_image import JobImage
from pool.starter.keeper import Keeper, Keepers
from pool.starter.place import ExecutionSite, UnixAccount
from pool.starter.progress import CountedStream
from pool.starter.resuming import Resumed


class SubmitSide(Protocol):
    """How a starter reaches its job's shadow."""

    async def fetch(self, activation: Activation, executable_wanted: bool) -> Any: ...
    async def store(self, activation: Activation) -> Any: ...
    async def remote_io(self, run: int, again: bool) -> Any: ...
    @property
    def reachable(self) -> bool: ...
    @property
    def is_direct(self) -> bool: ...
    async def store_image(self, activation: Activation, last: bool = False, number: str | None = None) -> Any: ...
    def kept_image(self, activation: Activation, images: ImageStore, manifest: Manifest) -> None: ...
    async def image(self, activation: Activation) -> Any: ...
    async def find_peer(self, activation: Activation) -> Any: ...
    def announce_chunks(self, activation: Activation) -> Callable[[str, int, bytes], None] | None: ...
    async def prepared(self, activation: Activation) -> Assembly | None: ...


@dataclass(slots=True)
class JobStart:
    """One start of a job on this machine.

    Attributes:
        activation: what is started; of a start that was found after a restart of the node, only its ids at first.
        submit_side: the way to the job's shadow.
        remote_pipes: the pipes to other machines, where the job runs on several.
        image: the root file system of its container, where it has one.
        keeper: the keeper whose program runs; None before that.
        room: of a job of one part whose network has a way out, this network.
        resumed: the checkpoint that this start goes on from.
        before: what the scratch directory held when the job first began: name to size and time of change.
        received, sent: bytes of files that were sent to the job before it began, and from it to the submit side (B4).
        transfer: the latest transfer of files, in either direction.
        leaves: set when the job has to leave before it began.
    """

    activation: Activation
    account: UnixAccount
    place: ExecutionSite
    keepers: Keepers
    submit_side: SubmitSide
    remote_pipes: RemotePipes | None
    image: JobImage
    keeper: Keeper | None = None
    room: JobRoom | None = None
    resumed: Resumed | None = None
    before: dict[str, tuple[int, int]] = field(default_factory=dict)
    received: int = 0
    sent: int = 0
    transfer: CountedStream | None = None
    leaves: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """The name of the start on this machine, also of one part of several."""
        start = self.activation
        return f"{start.name}.{start.run}" + (f".{start.part}" if start.gang else "")

    @property
    def own_files(self) -> bool:
        """Whether the job has files on this machine that belong to what is saved of it."""
        return self.activation.mode is not FileMode.SHARED

    @property
    def dumped_image(self) -> Path | None:
        """The keeper's image that this start restores."""
        return self.resumed.directory if self.resumed is not None and not self.resumed.self_written else None

    def safe_scratch(self) -> SafeDirectory:
        """The scratch directory, for work that no change by the job can lead astray."""
        return SafeDirectory(self.place.scratch, self.account.owner)
