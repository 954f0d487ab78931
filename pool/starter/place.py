"""A starter's part of this machine: the account and the place of a job; and the errors that say that it cannot run
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pool.errors import PoolError
from pool.images import ImageStore
from pool.jobs.activation import Activation
from pool.jobs.destinations import OutsideNames
from pool.jobs.huge_pages import NEVER

if TYPE_CHECKING:
    from pool.network.rooms import JobRoom
    from pool.starter.image_cache import ImageCache
    from pool.starter.keeper import Keeper


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """Whom a job runs as on this machine: derived here, never taken from the request (A13)."""

    uid: int
    gid: int
    groups: tuple[int, ...] | None
    name: str
    home: str
    switch: bool

    @property
    def owner(self) -> tuple[int, int] | None:
        return (self.uid, self.gid) if self.switch else None


@dataclass(slots=True)
class ExecutionSite:
    """Where a job runs: the slot's share of the machine and the node's directories.

    Attributes:
        scratch: the job's own directory: one for each slot, empty when a job begins, gone with the claim.
        images: where checkpoints lie on their way.
        image_cache: the unpacked images that the machine keeps; None where each job has its own.
        plugins: the transfer program of each scheme of URLs that is not the machine's own.
        empty: when the slot's scratch directory was last changed (ns) while it was known to be there and empty;
            a directory that has not changed since needs no look.
        memory, disk: bytes that a job may use; None where it is not held to them.
        system_calls, network, processes: JOB_SYSTEM_CALLS, JOB_NETWORK and JOB_PROCESSES.
        outside_names: for a job whose network has a way out, the names outside; None where there is no way out.
        join_outside: such a job of one part begins, in this network; None where there is no way out.
        private_tmp: a job that opens its files in place has a /tmp of its own, too (PRIVATE_TMP).
        huge_pages: what the kernel offers, see `pool.jobs.huge_pages`.
        spare_memory: see `pool.jobs.huge_pages.has_spare_memory`.
        gpus: the slot's; None on a machine that has none. devices: their files.
    """

    slot: str
    execute: Path
    executables: Path
    cpus: int
    memory: int | None
    disk: int | None = None
    hidden: tuple[str, ...] = ()
    system_calls: str = "filtered"
    network: str = "host"
    outside_names: Callable[[], OutsideNames | None] = lambda: None
    join_outside: Callable[[Activation, Keeper], JobRoom] | None = None
    processes: int | None = None
    private_tmp: bool = False
    huge_pages: str = NEVER
    spare_memory: bool = False
    gpus: tuple[str, ...] | None = None
    devices: tuple[str, ...] = ()
    empty: int | None = None
    images: Callable[[], ImageStore] | None = None
    image_cache: ImageCache | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)
    scratch: Path = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = self.execute / self.slot


class StartRefused(PoolError):
    """The job could not be started on this machine.

    Attributes:
        where: input, checkpoint, start, machine or account.
        unfit: no fault of the checkpoint's: this machine can never put it back.
        step: of the program's start, where that failed: see `StartFailed.call`.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str,
        hint: str = "",
        retry: bool = False,
        unfit: bool = False,
        step: str = "",
    ) -> None:
        super().__init__(message, hint=hint, retry=retry)
        self.where = where
        self.unfit = unfit
        self.step = step
