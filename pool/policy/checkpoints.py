"""When a checkpoint is made, what for, and what becomes of a job whose checkpoint fails (C3, C4, C7; EV 2.7, RL 4.2).

Pure: the starter asks when the next one is due and what to do when the owner wants the machine, the schedd which
checkpoint a start goes on from. How one is made is the keeper's business, where it lies `pool.images`'.

The rhythm is the papers': the first checkpoint after half an hour, then at doubled intervals of up to two hours. A
machine that has been left alone for long tends to be left alone for longer (EV 2.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pool.classad import ClassAd

#: The bounds of an interval or a count that a job may set, in seconds.
SHORTEST, LONGEST = 1.0, 30 * 86400.0
#: Seconds until a periodic checkpoint that came to nothing for what passes by itself is tried again; each time twice
#: as many.
SOON = 60.0
#: Seconds between the tries of a last one.
LAST_PAUSES = (1.0, 4.0)
#: Restores that may fail on one machine before the job is kept away from it.
MOST_FAILURES = 3
#: Seconds for which other machines may take such a job. Then the machine may have it once more, and the checkpoint is
#: given up if that fails, too: it may be the checkpoint's fault, and must not cost a job every machine.
KEPT_AWAY = 60.0


class CheckpointWish(StrEnum):
    """The submit command: `checkpoint = off | auto | self | required`."""

    OFF = "off"  # never
    AUTO = "auto"  # where it can be done; a job that cannot be saved runs on, marked so
    SELF = "self"  # the job writes its own, and ends with an agreed code when it has
    REQUIRED = "required"  # a job that cannot be saved is held instead of run


_WISHES = {str(wish): wish for wish in CheckpointWish}


class SaveWish(StrEnum):
    """Whether whoever stops a job cares for a last checkpoint."""

    NEVER = "never"  # it is removed
    WORTH = "worth"  # its machine is wanted for something else: where it has done enough since the last one
    ALWAYS = "always"  # its user says that it leaves, and counts on what it has done


class CheckpointCause(StrEnum):
    """The occasion of a checkpoint."""

    PERIODIC = "periodic"
    VACATE = "vacate"  # the last one before the job leaves its machine
    REMOVE = "remove"  # `poolnode rm --checkpoint`


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """When periodic checkpoints come.

    Attributes:
        first: seconds of running until the first; 0 or less for none at all.
        most: the longest interval, seconds.
        factor: what each interval is multiplied by to give the next.
    """

    first: float = 1800.0
    most: float = 7200.0
    factor: float = 2.0

    def interval(self, made: int, failed: int = 0) -> float | None:
        """Seconds of running until the next one. `made` counts the checkpoints since the start on this machine,
        `failed` those that have failed since the last one for a temporary reason (a process that did not stop, a full
        disk).
        """
        regular = self._regular(made)
        if regular is None or not failed:
            return regular
        return float(min(SOON * 2 ** min(failed - 1, 20), regular))

    def _regular(self, made: int) -> float | None:
        if self.first <= 0:
            return None
        if self.factor <= 1 or self.first >= self.most:
            return min(self.first, self.most)
        # Not by a power: a job of a year has made thousands of them.
        interval = self.first
        for _ in range(made):
            interval *= self.factor
            if interval >= self.most:
                return self.most
        return interval


def wish_of(job: ClassAd) -> CheckpointWish:
    """The job's wish; an unknown word counts as AUTO."""
    text = job.value("JobCheckpoint", None)
    if isinstance(text, str) and (wish := _WISHES.get(text.lower())) is not None:
        return wish
    return CheckpointWish.SELF if job.value("SuccessCheckpointExitCode", None) is not None else CheckpointWish.AUTO


def rhythm_of(job: ClassAd, pool: CheckpointInterval) -> CheckpointInterval:
    """The rhythm of a job: the pool's, or the job's own `checkpoint_interval`, at which it then stays."""
    own = job.value("CheckpointInterval", None)
    if isinstance(own, bool) or not isinstance(own, (int, float)):
        return pool
    if own <= 0:
        return CheckpointInterval(first=0.0)
    seconds = min(max(float(own), SHORTEST), LONGEST)
    return CheckpointInterval(seconds, seconds, 1.0)


def before_leaving(wish: CheckpointWish, allowed: bool, resumable: bool, ran: float, worth: float) -> bool:
    """Whether a last checkpoint is made before a job leaves its machine.

    Args:
        allowed: what the machine's owner says of it (WANT_CHECKPOINT).
        resumable: nothing was found in the job that cannot be saved.
        ran: seconds the job has run since its last checkpoint, or since its start.
        worth: seconds of work below which it is not worth the owner's time.
    """
    return wish in (CheckpointWish.AUTO, CheckpointWish.REQUIRED) and allowed and resumable and ran >= worth


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to go on from a checkpoint, that failed."""

    machine: str
    generation: int


def go_on_from(generations: Iterable[int], failed: Iterable[Attempt], own_machine: str = "") -> int | None:
    """The checkpoint a job's next start goes on from: the newest that has not failed; None for its beginning.

    A checkpoint is given up when it has failed on two machines, or on one more often than it may: then no other machine
    took the job while it was kept away from that one. One failure alone does not cost the job its work. The job is not
    kept away from `own_machine`, the submit machine, which may be the only one there is; failing there as often as it
    may counts for two.
    """
    tries = list(failed)
    for generation in sorted(generations, reverse=True):
        machines = [attempt.machine for attempt in tries if attempt.generation == generation]
        if len(set(machines)) < 2 and machines.count(own_machine) < MOST_FAILURES and len(machines) <= MOST_FAILURES:
            return generation
    return None


def avoided_machines(failed: Iterable[Attempt], own_machine: str = "") -> tuple[str, ...]:
    """The machines a job is kept away from: those where going on failed three times, but for `own_machine`."""
    machines = [attempt.machine for attempt in failed if attempt.machine != own_machine]
    return tuple(sorted({machine for machine in machines if machines.count(machine) >= MOST_FAILURES}))
