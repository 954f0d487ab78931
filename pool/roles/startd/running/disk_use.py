"""Disk space of a running job's files on this machine: measured now and again, and held to its slot's share.

The larger a job's tree is the more seldom it is looked at, so that looking never costs more than a small share of a
processor, whatever the job does.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from pathlib import Path
from typing import Protocol

from pool.classad import ClassAd
from pool.images.priority import run_low_priority
from pool.jobs.activation import FileMode
from pool.jobs.reasons import DISK_EXCEEDED, Reason
from pool.roles.startd.slots.records import SlotClaim
from pool.safe_directory import Owner, SafeDirectory
from pool.starter.starter import Starter

#: Seconds between two looks at least, and how much longer than the look itself the pause is.
EVERY, PAUSE = 5.0, 20.0


class WatchedJob(Protocol):
    """The running job, as far as its disk space needs it.

    Attributes:
        why: the reason for which it has to leave, if it has to.
    """

    @property
    def claim(self) -> SlotClaim: ...
    @property
    def starter(self) -> Starter | None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def why(self) -> Reason | None: ...

    async def end_over(self, why: str, subcode: int) -> None:
        """End the job, which has used more than it may."""


def measure(scratch: Path, owner: Owner) -> int:
    """Bytes that a directory takes on disk with all that is in it; a file of several names counts once. Blocks."""
    total, seen = 0, set()
    pending = [b""]
    with SafeDirectory(scratch, owner) as safe:
        while pending:
            below = pending.pop()
            with contextlib.suppress(OSError):  # gone, or locked away, meanwhile
                for name, status, _ in safe.entries(below):
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(below + b"/" + name if below else name)
                    elif status.st_nlink > 1:
                        if status.st_ino in seen:
                            continue
                        seen.add(status.st_ino)
                    total += status.st_blocks * 512
    return total


async def watch(running: WatchedJob) -> None:
    """End a job that takes more than its slot's share; returns when it has ended, or none is to be watched."""
    starter, loop = running.starter, asyncio.get_running_loop()
    if starter is None or starter.place.disk is None or starter.activation.mode is FileMode.SHARED:
        return
    pause = EVERY
    while not running.ended:
        await asyncio.sleep(pause)
        began = loop.time()
        try:
            used = await run_low_priority(measure, starter.scratch, starter.account.owner)
        except OSError:
            continue
        pause = max(EVERY, PAUSE * (loop.time() - began))
        if used > starter.place.disk and not running.ended and running.why is None:
            text = f"it used {used >> 20} MiB of disk, more than the {starter.place.disk >> 20} MiB of its slot"
            await running.end_over(text + asked_for(running.claim.ad, "RequestDisk", 1024), DISK_EXCEEDED)
            return


def asked_for(job: ClassAd, attribute: str, divisor: int) -> str:
    """A job's request in words, for the reason of its hold."""
    wanted = job.value(attribute, None)
    return f" (it requested {wanted / divisor:g} MB)" if isinstance(wanted, (int, float)) else ""
