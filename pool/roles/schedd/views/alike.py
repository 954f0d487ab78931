"""Jobs that a listing shows alike go out together: one ad, and the numbers of the processes.

Most jobs of a large cluster differ in their numbers alone. So a listing of a million jobs sends, and its reader lays
out, a few ads and a million small numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pool.jobs.privacy import public
from pool.policy.queue import QueuedJob, Wire

#: Jobs, and groups of them, that go out in one item.
MOST_JOBS, MOST_GROUPS = 2000, 500
#: Attributes that `QueuedJob.negotiation_answer` may give.
NEGOTIATION_ATTRIBUTES = frozenset({"WaitsForTurn", "LastRejMatchReason", "LastRejMatchTime"})


class GroupedListing:
    """The jobs that go out next.

    Args:
        wanted: the attributes that are shown.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = list(wanted)
        self._own = [name for name in wanted if name not in ("ClusterId", "ProcId", "JobStatus")]
        self._shows_negotiation = not NEGOTIATION_ATTRIBUTES.isdisjoint(wanted)
        self._groups: list[tuple[Wire, list[int]]] = []
        self._known: dict[Any, list[int]] = {}
        self._count = 0

    def add(self, job: QueuedJob, hidden: bool) -> None:
        """Add a job; `hidden`: without what is its owner's alone."""
        self._count += 1
        key: Any = (job.cluster.id, job.status, self._differs(job))
        try:
            procs = self._known.get(key)
        except TypeError:  # an expression or a list is among what differs
            procs, key = None, None
        if procs is None:
            procs = []
            ad = project(job, self._wanted)
            ad.pop("ProcId", None)
            self._groups.append((public(ad) if hidden else ad, procs))
            if key is not None:
                self._known[key] = procs
        procs.append(job.proc)

    def _differs(self, job: QueuedJob) -> Any:
        """The values of the shown attributes that can differ from the other jobs of the cluster."""
        if not job.delta and not job.state and not self._shows_negotiation:
            return None
        own = {**(job.delta or {}), **(job.state or {})}
        if self._shows_negotiation:
            own |= job.negotiation_answer()
        values = tuple(map(own.get, self._own))
        return values, tuple(map(type, values))  # 1, 1.0 and true are equal, and are not shown alike

    @property
    def full(self) -> bool:
        """Whether it is time to send them."""
        return self._count >= MOST_JOBS or len(self._groups) >= MOST_GROUPS

    def pop_groups(self) -> list[tuple[Wire, list[int]]]:
        """The jobs added, as they go out: (what is shown of them but their number, the processes' numbers)."""
        groups, self._groups = self._groups, []
        self._known.clear()
        self._count = 0
        return groups


def project(job: QueuedJob, wanted: Sequence[str]) -> Wire:
    """The attributes of a job that are shown."""
    own = job.own_wire() | job.negotiation_answer()
    shared = job.cluster.wire
    found: Wire = {}
    for name in wanted:
        if name in own:
            found[name] = own[name]
        elif name in shared:
            found[name] = shared[name]
    return found
