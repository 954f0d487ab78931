"""The input and the output of the store: changes to the queue, and the rows that come back.

Plain data. Ads and job states are opaque bytes here: the store neither reads nor makes them. Every time is
wall time in seconds, handed in by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import msgpack

WHOLE_CLUSTER = -1
"""In place of a process number: the event concerns every process of its cluster."""

MOST_ALIKE = 1000
"""Processes of one `SetProcs`, `EndProcs` or `AddEvents` at most."""


@dataclass(frozen=True, slots=True)
class NewCluster:
    """A cluster of `count` idle, untouched processes (EV 3.3).

    Attributes:
        cluster: an id that no cluster was ever stored under; ids are never used again.
        deltas: what process i has beyond the cluster's ad, None where it has nothing; None as a whole, or
            empty, when no process differs (the cluster then costs one row however large it is).
        state: the status and the state of all processes from the beginning, where they are not idle and untouched.
    """

    cluster: int
    owner: str
    ad: bytes
    count: int
    deltas: Sequence[bytes | None] | None
    time: float
    state: tuple[int, bytes] | None = None


class SetProc(NamedTuple):
    """The present state of one process. Status idle with an empty state is 'untouched' and costs no row."""

    cluster: int
    proc: int
    status: int
    state: bytes


class SetProcs(NamedTuple):
    """As a `SetProc` for each of `procs` processes that follow each other from `first` on, kept in one row."""

    cluster: int
    first: int
    procs: int
    status: int
    state: bytes


class EndProc(NamedTuple):
    """A process leaves the queue for the history, once.

    Attributes:
        ad: its final ad, without what it shares with its cluster.
        local_cpu, remote_cpu: seconds used on the submit side and on the execute side (EV 2.8).
        work, lost: seconds of work done, and taken away before the submit side had it.
        saving, saved: seconds that checkpoints took, and bytes of them that travelled (`pool.jobs.costs`).
    """

    cluster: int
    proc: int
    status: int
    ad: bytes
    time: float
    local_cpu: float = 0.0
    remote_cpu: float = 0.0
    work: float = 0.0
    lost: float = 0.0
    saving: float = 0.0
    saved: int = 0


class EndProcs(NamedTuple):
    """As an `EndProc` for each of `procs` processes that follow each other from `first` on.

    They are kept in one row if they share their final ad.

    Attributes:
        ads: the final ad of each; or the bytes that the ads of all begin with, which end with the process's own number,
            packed.
        local_cpu, remote_cpu, work, lost, saving, saved: of each of them.
    """

    cluster: int
    first: int
    procs: int
    status: int
    ads: bytes | Sequence[bytes]
    time: float
    local_cpu: float = 0.0
    remote_cpu: float = 0.0
    work: float = 0.0
    lost: float = 0.0
    saving: float = 0.0
    saved: int = 0


class AddEvent(NamedTuple):
    """One more event of a job; the result of writing it is its number. `proc` may be WHOLE_CLUSTER."""

    cluster: int
    proc: int
    kind: str
    time: float
    data: bytes


class AddEvents(NamedTuple):
    """As an `AddEvent` for each of `procs` processes that follow each other from `first` on, kept in one row.

    The result of writing it is the number of the first event; the others follow it.
    """

    cluster: int
    first: int
    procs: int
    kind: str
    time: float
    data: bytes


class RemoveCluster(NamedTuple):
    """The cluster leaves the queue; its history and events stay.

    What is kept of its processes goes with it, up to a bound; `ForgetRemoved` takes the rest.
    """

    cluster: int


class ForgetRemoved(NamedTuple):
    """Delete what is left of the processes of clusters that were removed, `limit` rows.

    The result of writing it is the number of rows deleted; call again while it is not 0.
    """

    limit: int = 1000


class SetMeta(NamedTuple):
    """A named value; None removes it."""

    key: str
    value: bytes | None


class Trim(NamedTuple):
    """Forget history and events older than `before` of clusters no longer queued, `limit` rows of each.

    The result of writing it is the number of rows forgotten; call again while it is not 0.
    """

    before: float
    limit: int = 1000


class Shrink(NamedTuple):
    """Give pages that nothing is kept in back to the file system, so many.

    The result of writing it is the number of such pages that are left; call again while there are many.
    """

    pages: int = 250


class RewriteFile(NamedTuple):
    """Write the whole file anew, so that from then on it can give back what becomes free (`Shrink`).

    For a file of an older store. It is written alone, by the writer's thread; other writes wait meanwhile, some
    seconds a gigabyte of what is kept.
    """


JobsChange = NewCluster | SetProc | SetProcs | EndProc | EndProcs | AddEvent | AddEvents | RemoveCluster
Change = JobsChange | ForgetRemoved | SetMeta | Trim | Shrink | RewriteFile


#: Processes that are no longer, or not only, 'idle, untouched': cluster, process, status, state (None: ended), and for
#: how many processes from that one on this is so.
ProcRow = tuple[int, int, int, bytes | None, int]


class HistoryRow(NamedTuple):
    """A process that has left the queue; `number` grows with each.

    Attributes:
        ad: the part of its final ad that is its own, or by an older program all of it.
        shared: its cluster's ad, beneath that; the same object for rows that are read together.
    """

    number: int
    cluster: int
    proc: int
    owner: str
    status: int
    time: float
    ad: bytes
    shared: bytes = b""


class EventRow(NamedTuple):
    """An event as stored; `proc` is WHOLE_CLUSTER where it concerns all processes of the cluster."""

    number: int
    cluster: int
    proc: int
    kind: str
    time: float
    data: bytes


class UsageRow(NamedTuple):
    """The use by an owner's ended jobs (EV 2.8: condor_summary). Seconds, and bytes; see `EndProc`."""

    owner: str
    jobs: int
    local_cpu: float
    remote_cpu: float
    work: float = 0.0
    lost: float = 0.0
    saving: float = 0.0
    saved: int = 0


@dataclass(slots=True)
class ClusterRow:
    """A queued cluster as loaded at start.

    Attributes:
        blocks: the differences of its processes as they are stored, so many in each; none where no process differs.
    """

    cluster: int
    owner: str
    ad: bytes
    count: int
    time: float
    blocks: list[bytes] = field(default_factory=list)

    def deltas(self) -> Iterator[bytes | None]:
        """The attributes of each process beyond the cluster's ad, packed; None where it has none."""
        if not self.blocks:
            yield from repeat(None, self.count)
        for block in self.blocks:
            yield from msgpack.unpackb(block)


@dataclass(slots=True)
class Loaded:
    """The queue as the last run of a schedd left it, without the states of processes (`Store.procs`)."""

    next_cluster: int
    next_event: int
    clusters: list[ClusterRow]
    meta: dict[str, bytes]
