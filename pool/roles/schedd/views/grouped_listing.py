"""Groups the jobs of a listing by what it shows of them (`pool.jobs.job_columns`). So a listing of a million equal jobs
is a few ads and a million small numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pool.jobs.job_columns import JobColumns, each_job
from pool.jobs.privacy import public
from pool.policy.queue import QueuedJob, Wire

#: The most jobs, jobs with values of their own, and groups in one batch.
MOST_JOBS, MOST_DIFFERING, MOST_GROUPS = 2000, 500, 500
#: Groups are joined if they have fewer jobs than this on average. A job that is alone in its cluster makes no group.
SMALL = 8
#: Attributes that `QueuedJob.negotiation_answer` may give.
NEGOTIATION_ATTRIBUTES = frozenset({"WaitsForTurn", "LastRejMatchReason", "LastRejMatchTime"})
#: Types whose values are the same if they are equal and have one type.
_SCALARS = frozenset({str, int, float, bool})


class GroupedListing:
    """The jobs of the next batch, by groups.

    Args:
        wanted: the attributes that are shown.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = list(wanted)
        self._own = frozenset(wanted) - {"ClusterId", "ProcId", "JobStatus"}
        self._shows_negotiation = not NEGOTIATION_ATTRIBUTES.isdisjoint(wanted)
        self._groups: dict[Any, JobColumns] = {}
        #: Jobs that are alone in their clusters: their values, by the names of these.
        self._rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        self._count = self._differing = self._alone = 0

    def add(self, job: QueuedJob, hidden: bool) -> None:
        """Add a job; `hidden`: without the attributes that only its owner may see."""
        self._count += 1
        if len(job.cluster.jobs) == 1:
            self._add_alone(job, hidden)
            return
        own = self._own_values(job) if job.delta or job.state or self._shows_negotiation else None
        if own:
            self._differing += 1
            if hidden:
                own = public(own)
        key = (job.cluster.id, job.status, *own) if own else (job.cluster.id, job.status)
        group = self._groups.get(key)
        if group is None:
            ad = project(job, self._wanted)
            if hidden:
                ad = public(ad)
            for name in ("ProcId", *(own or ())):
                ad.pop(name, None)
            group = self._groups[key] = ad, {name: [] for name in ("ProcId", *(own or ()))}
        columns = group[1]
        columns["ProcId"].append(job.proc)
        if own:
            for name, value in own.items():
                columns[name].append(value)

    def _add_alone(self, job: QueuedJob, hidden: bool) -> None:
        self._alone += 1
        ad = project(job, self._wanted)
        if hidden:
            ad = public(ad)
        ad["ProcId"] = job.proc
        self._rows.setdefault(tuple(ad), []).append(tuple(ad.values()))

    def _own_values(self, job: QueuedJob) -> Wire:
        """The shown attributes that may differ from those of other jobs of the cluster."""
        own = {**(job.delta or {}), **(job.state or {})}
        if self._shows_negotiation:
            own |= job.negotiation_answer()
        return {name: value for name, value in own.items() if name in self._own}

    @property
    def full(self) -> bool:
        """Whether the batch is to be sent."""
        differing = self._differing + self._alone
        return self._count >= MOST_JOBS or differing >= MOST_DIFFERING or len(self._groups) >= MOST_GROUPS

    def pop_groups(self) -> list[JobColumns]:
        """The groups of the batch, which is empty then."""
        groups = list(self._groups.values())
        if self._count - self._alone < SMALL * len(groups):
            groups = _joined(groups)
        for names, rows in self._rows.items():
            groups.append(({}, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))))
        for shared, columns in groups:
            for name in [name for name, column in columns.items() if name != "ProcId" and _all_same(column)]:
                shared[name] = columns.pop(name)[0]
        self._groups, self._rows = {}, {}
        self._count = self._differing = self._alone = 0
        return groups


def _joined(groups: Sequence[JobColumns]) -> list[JobColumns]:
    """Joins small groups, such as clusters of two jobs each, if their jobs have the same attributes."""
    by_names: defaultdict[tuple[str, ...], list[Wire]] = defaultdict(list)
    for group in groups:
        by_names[*group[0], *group[1]] += each_job(group)
    return [({}, {name: [ad[name] for ad in ads] for name in names}) for names, ads in by_names.items()]


def _all_same(column: Sequence[Any]) -> bool:
    """Whether a column has only one value. 1, 1.0 and true are equal, but are shown in different ways."""
    first = column[0]
    return type(first) in _SCALARS and column.count(first) == len(column) and len(set(map(type, column))) == 1


def project(job: QueuedJob, wanted: Sequence[str]) -> Wire:
    """The attributes of a job that are shown."""
    own = job.own_wire() | job.negotiation_answer()
    first, second = job.cluster.layers
    found: Wire = {}
    for name in wanted:
        for layer in (own, first, second):
            if name in layer:
                found[name] = layer[name]
                break
    return found
