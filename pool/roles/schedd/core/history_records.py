"""Records of jobs that leave the queue for the history, and what the events of their ends tell.

Of jobs that are removed together most differ in their numbers only: what they have in common is worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pool.jobs.notice import FIGURES, account
from pool.policy.packed import Repeats, pack
from pool.policy.queue import QueuedCluster, QueuedJob, Wire
from pool.store import EndProc, EndProcs

#: The attributes of which `_used` makes the use that the store adds up.
_USED = (
    *("LocalUserCpu", "LocalSysCpu", "RemoteUserCpu", "RemoteSysCpu"),
    *("CommittedTime", "WorkLost", "CheckpointSeconds", "CheckpointBytes"),
)


#: The attributes that say how a removed job is recorded, beside its ad.
RECORDED_BY = frozenset((*_USED, *FIGURES, "RemoveReason", "LeaveJobInQueue"))


class HistoryRecords:
    """The records of jobs that leave together.

    Args:
        now: when, wall seconds.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._states = Repeats()
        self._alike: AlikeJobs | None = None

    def of(self, job: QueuedJob) -> AlikeJobs:
        """Returns what a job shares with those of its cluster that left just before it, if they were like it."""
        again = self._states.is_again(job.state or {})
        if self._alike is None or not again or not self._alike.has(job):
            self._alike = AlikeJobs(job, self._now)
        return self._alike


class AlikeJobs:
    """Jobs of one cluster that end in the same way, and differ in their process numbers only.

    Args:
        job: the first of them, in its last status.
        now: when they leave the queue, wall seconds.

    Attributes:
        may_stay: whether they may be kept in the queue for a while, by `LeaveJobInQueue`.
    """

    def __init__(self, job: QueuedJob, now: float) -> None:
        own = job.own_wire()
        wire = {**job.cluster.wire, **own}
        self.may_stay = wire.get("LeaveJobInQueue", False) is not False
        self._cluster: QueuedCluster = job.cluster
        self._status, self._delta, self._now = job.status, job.delta, now
        self._account = account(wire, now)
        self._used = _used(wire)
        own["ProcId"] = own.pop("ProcId")  # it comes last: the bytes before it are the same for all
        packed = pack(own)
        self._head = packed[: len(packed) - len(pack(own["ProcId"]))]
        self._told = Repeats()
        self._data: Wire = {}

    def has(self, job: QueuedJob) -> bool:
        """Whether another job is one of them; its state is known to be the same."""
        same = job.cluster is self._cluster and job.status is self._status
        return same and (job.delta is self._delta or not (job.delta or self._delta))

    def event_data(self, data: Wire) -> Wire:
        """Returns the data of the event of an end, with the account.

        Equal data give the same object, which is not to be changed.
        """
        if not self._told.is_again(data):
            self._data = data | self._account
        return self._data

    def record(self, job: QueuedJob) -> EndProc:
        """The step of a job into the history."""
        return EndProc(job.cluster.id, job.proc, self._status, self._head + pack(job.proc), self._now, *self._used)

    def record_all(self, jobs: Sequence[QueuedJob]) -> EndProcs:
        """The step into the history of jobs that follow each other: they are as the first, but for their own
        differences, which say nothing of how they are recorded."""
        ads: bytes | list[bytes] = self._head
        if any(job.delta is not self._delta and (job.delta or self._delta) for job in jobs):
            ads = [pack(job.own_wire()) for job in jobs]
        first = jobs[0].proc
        return EndProcs(self._cluster.id, first, len(jobs), self._status, ads, self._now, *self._used)


def _used(wire: dict[str, Any]) -> tuple[float, float, float, float, float, int]:
    """The use of an ended process, as `EndProc` takes it."""
    values = [wire.get(name) for name in _USED]
    if not any(values):  # it never ran
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0
    local, kernel, remote, far, work, lost, saving, saved = (
        float(value) if isinstance(value, (int, float)) else 0.0 for value in values
    )
    return local + kernel, remote + far, work, lost, saving, int(saved)
