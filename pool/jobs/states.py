"""The states a job passes through in the queue.

Rules:

1.  A job is in one state; its number is HTCondor's JobStatus, its letter that of `q` (EV 2.8).
2.  Nothing runs without START having been written durably first (the start contract): START is the only way
    out of IDLE towards a machine, and the action WRITE_RUN belongs to it.
3.  Whatever ends a run goes through END_RUN: the claim's lease is over or the startd has confirmed the end.
    So REMOVE and HOLD of a job that has a machine are asked for first (the machine is asked to stop) and
    happen here only once the run is over.
4.  COMPLETED and REMOVED are final: the job enters the history, once. A completed one whose `leave_in_queue` is true
    stays to be seen in the queue first; nothing but LEAVE happens to it.
5.  A pair that the table does not list is refused, never guessed at. A late report about a run that was
    given up must be recognised by its run number before it comes here.

::

      HELD <--HOLD-- (any but the final ones)          (any but the final ones) --REMOVE--> REMOVED
        |
     RELEASE          +--CONTINUE--+
        v             v            |
      IDLE --START--> RUNNING --SUSPEND--> SUSPENDED
        ^               |                    |
        |             OUTPUT               OUTPUT
        |               v                    |
        |       TRANSFERRING_OUTPUT <--------+
        |
        +--EVICT, LOST, REQUEUE-- (the three that have a machine) --EXIT--> COMPLETED

A gap in the table is an event that may never happen in that state: a held job does not start, a completed one does not
move.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from pool.errors import PoolError


class JobStatus(IntEnum):
    """HTCondor's numbers."""

    IDLE = 1
    RUNNING = 2
    REMOVED = 3
    COMPLETED = 4
    HELD = 5
    TRANSFERRING_OUTPUT = 6
    SUSPENDED = 7

    @property
    def letter(self) -> str:
        """As `q` shows it (EV 2.8, and today's three more)."""
        return _LETTERS[self]

    @property
    def final(self) -> bool:
        """Whether the job has ended; it leaves the queue with that, unless it is to be seen there for a while."""
        return self in (JobStatus.REMOVED, JobStatus.COMPLETED)

    @property
    def has_machine(self) -> bool:
        """Whether a claim is in use for the job."""
        return self in (JobStatus.RUNNING, JobStatus.TRANSFERRING_OUTPUT, JobStatus.SUSPENDED)


_LETTERS = {
    JobStatus.IDLE: "I",
    JobStatus.RUNNING: "R",
    JobStatus.REMOVED: "X",
    JobStatus.COMPLETED: "C",
    JobStatus.HELD: "H",
    JobStatus.TRANSFERRING_OUTPUT: ">",
    JobStatus.SUSPENDED: "S",
}


class Happening(StrEnum):
    """The events that move a job from one state to another."""

    START = "start"  # a claim was chosen for it and the intention is about to be sent
    SUSPEND = "suspend"
    CONTINUE = "continue"
    OUTPUT = "output"  # the program has ended, its output is on the way
    EXIT = "exit"  # ended, output in place, policy says done
    REQUEUE = "requeue"  # ended by itself, policy says run again
    EVICT = "evict"  # the machine was taken back, or could not start it
    LOST = "lost"  # the lease has ended without word from the machine
    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    LEAVE = "leave"  # completed before, and no longer wished to be seen in the queue


class QueueAction(StrEnum):
    """The schedd's part of the move, in the same transaction."""

    NONE = "none"
    WRITE_RUN = "write_run"  # slot, claim and lease, durable before anything is sent
    END_RUN = "end_run"  # add up the run's usage, forget the claim for this job
    ENTER_HISTORY = "enter_history"  # as END_RUN where there was a run; then out of the queue


class JobTransition(NamedTuple):
    """Where to, and what to do."""

    next: JobStatus
    action: QueueAction


class JobStateError(PoolError):
    """An event that cannot happen to a job in its state."""


def _rows() -> dict[tuple[JobStatus, Happening], JobTransition]:
    s, h, a = JobStatus, Happening, QueueAction
    table = {
        (s.IDLE, h.START): JobTransition(s.RUNNING, a.WRITE_RUN),
        (s.IDLE, h.HOLD): JobTransition(s.HELD, a.NONE),
        (s.IDLE, h.REMOVE): JobTransition(s.REMOVED, a.ENTER_HISTORY),
        (s.HELD, h.RELEASE): JobTransition(s.IDLE, a.NONE),
        (s.HELD, h.REMOVE): JobTransition(s.REMOVED, a.ENTER_HISTORY),
        (s.COMPLETED, h.LEAVE): JobTransition(s.COMPLETED, a.ENTER_HISTORY),
        (s.RUNNING, h.SUSPEND): JobTransition(s.SUSPENDED, a.NONE),
        (s.SUSPENDED, h.CONTINUE): JobTransition(s.RUNNING, a.NONE),
        (s.RUNNING, h.OUTPUT): JobTransition(s.TRANSFERRING_OUTPUT, a.NONE),
        # A stopped program can still be killed, or end by a signal it was sent before it was stopped.
        (s.SUSPENDED, h.OUTPUT): JobTransition(s.TRANSFERRING_OUTPUT, a.NONE),
    }
    for state in (s.RUNNING, s.SUSPENDED, s.TRANSFERRING_OUTPUT):
        table |= {
            (state, h.EXIT): JobTransition(s.COMPLETED, a.ENTER_HISTORY),
            (state, h.REQUEUE): JobTransition(s.IDLE, a.END_RUN),
            (state, h.EVICT): JobTransition(s.IDLE, a.END_RUN),
            (state, h.LOST): JobTransition(s.IDLE, a.END_RUN),
            (state, h.HOLD): JobTransition(s.HELD, a.END_RUN),
            (state, h.REMOVE): JobTransition(s.REMOVED, a.ENTER_HISTORY),
        }
    return table


TABLE = _rows()


def transition(state: JobStatus, happening: Happening) -> JobTransition:
    """The next state and the action.

    Raises:
        JobStateError: the table does not list the pair.
    """
    found = TABLE.get((state, happening))
    if found is None:
        possible = ", ".join(h.value for (s, h) in TABLE if s is state) or "nothing: it has left the queue"
        raise JobStateError(
            f"cannot {happening.value} a job that is {state.name.lower().replace('_', ' ')}",
            hint=f"possible now: {possible}",
        )
    return found


def draw() -> str:
    """The table as a Mermaid state diagram, for the docs: one arrow for each pair of states, with what moves it."""
    edges: dict[tuple[JobStatus, JobStatus], list[str]] = {}
    for (state, happening), (after, _) in TABLE.items():
        edges.setdefault((state, after), []).append(happening.value)
    lines = ["stateDiagram-v2", f"    [*] --> {JobStatus.IDLE.name}"]
    lines += [f"    {a.name} --> {b.name}: {', '.join(names)}" for (a, b), names in edges.items()]
    lines += [f"    {state.name} --> [*]" for state in JobStatus if state.final]
    return "\n".join(lines) + "\n"
