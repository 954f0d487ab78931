"""Jobs, machines and queues for tests of the dedicated scheduler's decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pool.policy.dedicated import (
    Decisions,
    DedicatedJob,
    DedicatedRun,
    MachineClass,
    MachineState,
    PartClass,
    Share,
    UserQueue,
)


def gang(
    name: str,
    size: int,
    *,
    fits: Sequence[str] = ("k",),
    user: str = "alice",
    submitted: float = 0.0,
    duration: float | None = None,
    saveable: bool = False,
    **more: object,
) -> DedicatedJob:
    """A job whose parts are alike."""
    return DedicatedJob(
        name,
        user,
        (PartClass(size, tuple(fits)),),
        submitted,
        duration=duration,
        saveable=saveable,
        **more,  # type: ignore[arg-type]
    )


def queue(*jobs: DedicatedJob, used: float = 0.0, last_start: float = -math.inf) -> tuple[UserQueue, ...]:
    """The queues of these jobs' users."""
    users = dict.fromkeys(job.user for job in jobs)
    return tuple(UserQueue(user, tuple(j for j in jobs if j.user == user), used, last_start) for user in users)


def machines(
    idle: int = 0, unclaimed: int = 0, occupied: int = 0, away: int = 0, *, kind: str = "k", unused: bool = False
) -> tuple[MachineClass, ...]:
    """Machines of one kind: i1, i2 ... are claimed idle, u1 ... unclaimed, o1 ... occupied, a1 ... away."""
    states = (
        (MachineState.CLAIMED_IDLE, "i", idle),
        (MachineState.UNCLAIMED, "u", unclaimed),
        (MachineState.OCCUPIED, "o", occupied),
        (MachineState.AWAY, "a", away),
    )
    prefix = "" if kind == "k" else kind
    return tuple(
        MachineClass(
            kind, state, tuple(f"{prefix}{letter}{n + 1}" for n in range(count)), unused=unused and letter == "i"
        )
        for state, letter, count in states
        if count
    )


def runs(job: DedicatedJob, started: float = 0.0, *, backfilled: bool = False, kind: str = "k") -> DedicatedRun:
    """A gang that runs on machines of one kind."""
    names = tuple(f"{job.id}:{n + 1}" for n in range(job.size))
    return DedicatedRun(job, started, (Share(0, kind, names),), backfilled)


def names(shares: Iterable[Share]) -> list[str]:
    """All machines of some shares."""
    return [name for share in shares for name in share.machines]


def started(decisions: Decisions) -> dict[str, list[str]]:
    """The machines of each job that starts."""
    return {start.job: names(start.shares) for start in decisions.starts}


def requested(decisions: Decisions) -> dict[str, list[str]]:
    """The machines that are asked for each job."""
    return {request.job: names(request.shares) for request in decisions.requests}


def kept(decisions: Decisions) -> dict[str, list[str]]:
    """The idle claims that are kept for each job."""
    return {keep.job: list(keep.machines) for keep in decisions.keeps}
