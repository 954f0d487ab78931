"""The checkpoints that `rm --checkpoint` has kept: what there is, and away with what is not needed (docs/saving.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool.client.pool import Pool


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """One checkpoint of a job that was removed.

    Attributes:
        job: its id, `12.0`: what `start_from_checkpoint` takes.
        owner, command: whose it was, and what it ran.
        size: bytes, as if nothing were compressed. created: wall seconds.
        own: the job wrote it itself; such a one goes on on any machine that runs the program.
        machine, kernel, arch, processor: what it was made on, empty where that is not known. It goes on where the
            processor has all that this one had (`processor` is the level of it, `x86_64-v3`), on any kernel that can
            save jobs.
    """

    job: str
    owner: str
    command: str
    size: int
    created: float
    own: bool
    machine: str = ""
    kernel: str = ""
    arch: str = ""
    processor: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The outcome of a deletion: ids of jobs, and pairs of such an id and why its checkpoint is still there."""

    done: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


async def kept_checkpoints(pool: Pool) -> list[KeptCheckpoint]:
    """The caller's kept checkpoints, by job; everybody's for an administrator.

    Raises:
        PoolError: they lie on a checkpoint server that cannot be reached now.
    """
    return [KeptCheckpoint(**one) for one in await pool.call("schedd.checkpoints")]


async def delete_checkpoints(pool: Pool, jobs: Iterable[str]) -> Deleted:
    """Delete the kept checkpoints of removed jobs, by their ids. Jobs that have begun with one are not touched.

    Raises:
        PoolError: they lie on a checkpoint server that cannot be reached now.
    """
    answer = await pool.call("schedd.drop_checkpoints", {"jobs": list(jobs)})
    return Deleted(tuple(answer["done"]), tuple((str(job), str(why)) for job, why in answer["refused"]))
