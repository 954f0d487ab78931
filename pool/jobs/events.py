"""Events of jobs, as data: one for each thing a user may want to know about.

The schedd stores events, streams them to whoever watches, and renders them into the user's log
(`pool.jobs.userlog`). An event says what happened, never what to do about it.

Keys of `data`, each only where it is known:

    why                       in words: EVICTED, HELD, RELEASED, ABORTED, SHADOW_EXCEPTION, DISCONNECTED,
                              RECONNECT_FAILED
    reason                    EVICTED: the kind, of `pool.jobs.reasons.Evict`
    code, subcode             HELD: HTCondor's hold reason code. TERMINATED, requeued EVICTED: the exit code
    signal, core              TERMINATED: the signal that ended the job, and whether (or where) it left a core file
    requeued                  EVICTED: the job ended by itself and runs again; `code` or `signal` say how it ended
    slot, address             the slot's name and its startd's address
    user_cpu, system_cpu, local_user_cpu, local_system_cpu    seconds of this run, remote and on the submit side
    total_user_cpu, total_system_cpu, total_local_user_cpu, total_local_system_cpu    seconds of all runs
    cause, submitted, ended, real, leverage    TERMINATED, ABORTED: the notice's content (VS 6.3.3): how it ended in
                              words, wall times, seconds between them, remote seconds for each local one (None: unknown)
    wall                      seconds of this run by the clock on the wall
    max_rss, image_size, memory    KiB, KiB, MiB
    network                   EVICTED, TERMINATED: what the job's own network has carried in all runs, in words
    sent, received            bytes of this run; total_sent, total_received of all
    resources                 {name: {"usage":, "request":, "allocated":, "assigned":}}
    processes                 SUSPENDED: how many were stopped
    checkpointed              EVICTED: whether a checkpoint was committed
    ends                      TERMINATED: the end of each process of a pipe job (`pool.jobs.pipes.model.ENDS`); `why`
                              names the failed one
    notes, user_notes         SUBMIT: the job description's texts
    direction, phase, host, queued    FILE_TRANSFER: "in" or "out"; "queued", "started" or "finished"; seconds
    work, lost                seconds of work of all runs, done or taken away before; see `pool.jobs.costs`
    checkpoints, checkpoint_seconds, checkpoint_bytes    how many reached the submit side, and what they cost
    count                     SUBMIT of a whole cluster: how many processes
    text                      NOTICE
    nodes                     NODE_EXECUTE, NODE_TERMINATED: what happened to nodes of a parallel job in one moment, as
                              lists of `NODE_BEGAN` or `NODE_ENDED`; each is an event of its own in a user's log
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

WHOLE_CLUSTER = -1
"""In place of a process number: the event concerns every process of the cluster."""


#: The facts about each node of a parallel job in an event.
NODE_BEGAN = ("node", "slot")
NODE_ENDED = (*NODE_BEGAN, "code", "signal", "core", "user_cpu", "system_cpu", "sent", "received")


class EventKind(StrEnum):
    """Kinds of events. The names are HTCondor's where it has one."""

    SUBMIT = "SUBMIT"
    EXECUTE = "EXECUTE"
    CHECKPOINTED = "CHECKPOINTED"
    EVICTED = "EVICTED"
    TERMINATED = "TERMINATED"
    IMAGE_SIZE = "IMAGE_SIZE"
    SHADOW_EXCEPTION = "SHADOW_EXCEPTION"
    NOTICE = "NOTICE"
    ABORTED = "ABORTED"
    SUSPENDED = "SUSPENDED"
    UNSUSPENDED = "UNSUSPENDED"
    HELD = "HELD"
    RELEASED = "RELEASED"
    DISCONNECTED = "DISCONNECTED"
    RECONNECTED = "RECONNECTED"
    RECONNECT_FAILED = "RECONNECT_FAILED"
    FILE_TRANSFER = "FILE_TRANSFER"
    NODE_EXECUTE = "NODE_EXECUTE"
    NODE_TERMINATED = "NODE_TERMINATED"

    @property
    def code(self) -> int:
        """The number that begins the event in HTCondor's event log."""
        return _CODES[self]

    @property
    def ends(self) -> bool:
        """Whether nothing further happens to a job after it (unless its exit makes it held)."""
        return self in (EventKind.TERMINATED, EventKind.ABORTED)


_CODES = {
    EventKind.SUBMIT: 0,
    EventKind.EXECUTE: 1,
    EventKind.CHECKPOINTED: 3,
    EventKind.EVICTED: 4,
    EventKind.TERMINATED: 5,
    EventKind.IMAGE_SIZE: 6,
    EventKind.SHADOW_EXCEPTION: 7,
    EventKind.NOTICE: 8,
    EventKind.ABORTED: 9,
    EventKind.SUSPENDED: 10,
    EventKind.UNSUSPENDED: 11,
    EventKind.HELD: 12,
    EventKind.RELEASED: 13,
    EventKind.DISCONNECTED: 22,
    EventKind.RECONNECTED: 23,
    EventKind.RECONNECT_FAILED: 24,
    EventKind.FILE_TRANSFER: 40,
    EventKind.NODE_EXECUTE: 14,
    EventKind.NODE_TERMINATED: 15,
}


@dataclass(slots=True)
class JobEvent:
    """Something that happened to a job; not to be changed. (A frozen one takes three times as long to make.)

    Attributes:
        number: its place in the schedd's sequence of events; None until it has been stored.
        proc: the process, or WHOLE_CLUSTER.
        time: wall time in seconds.
        data: see the module's docstring.
    """

    number: int | None
    cluster: int
    proc: int
    kind: EventKind
    time: float
    data: Mapping[str, Any] = field(default_factory=dict)

    def for_proc(self, proc: int) -> JobEvent:
        """The same event as seen by one process of its cluster."""
        return replace(self, proc=proc)

    def concerns(self, cluster: int, proc: int | None = None) -> bool:
        """Whether it is about this process, or about any process of the cluster where none is given."""
        return self.cluster == cluster and (proc is None or self.proc in (proc, WHOLE_CLUSTER))

    def to_wire(self) -> dict[str, Any]:
        """As a dict of plain values."""
        return {
            "number": self.number,
            "cluster": self.cluster,
            "proc": self.proc,
            "kind": self.kind.value,
            "time": self.time,
            "data": dict(self.data),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> JobEvent:
        """The reverse of `to_wire`.

        Raises:
            ValueError: a field is missing or the kind is unknown (a newer schedd's).
        """
        try:
            number = wire["number"]
            return cls(
                None if number is None else int(number),
                int(wire["cluster"]),
                int(wire["proc"]),
                EventKind(wire["kind"]),
                float(wire["time"]),
                dict(wire["data"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no job event: {error}") from error


@dataclass(slots=True)
class AlikeEvents:
    """The same event of processes of one cluster that follow each other, each with a number of its own.

    Attributes:
        number: of the first process's event; those of the others follow it.
        first: the first process.
        count: how many they are.
        time, data: as `JobEvent`'s.
    """

    number: int
    cluster: int
    first: int
    count: int
    kind: EventKind
    time: float
    data: Mapping[str, Any]

    @property
    def last_number(self) -> int:
        """The number of the last process's event."""
        return self.number + self.count - 1

    def __iter__(self) -> Iterator[JobEvent]:
        """The event of each process."""
        for place in range(self.count):
            yield JobEvent(self.number + place, self.cluster, self.first + place, self.kind, self.time, self.data)
