"""The job queue as it lies in memory: clusters, their processes, and which idle job comes next.

Plain data and no I/O: the schedd loads it from the store, changes it after each durable write, and asks it for the next
job. A job keeps only its differences from its cluster, so that an idle job costs a few hundred bytes; its full ad is
made on demand (EV 3.3's record, with the cluster's part shared). The cluster's part is kept packed, since many clusters
have a single job that waits.

The order within one owner is the schedd's PRIO expression (EV 2.6, TS 8.2), highest first, then by id. Idle jobs
stand in *groups*, one for each owner and autocluster; each has its own order (`idle_order`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from pool.classad import ClassAd, Expr, evaluate
from pool.classad.names import fold
from pool.jobs.crontab import CRONTAB
from pool.jobs.states import JobStatus
from pool.policy import autoclusters, materialization
from pool.policy.charges import Charge
from pool.policy.job_groups import JobGroup
from pool.policy.materialization import Materialization
from pool.policy.packed import OF_ITS_OWN, ad_of, layers_of, pack, parted, wire_of
from pool.policy.paged_table import PagedTable

IDLE, RUNNING, HELD, SUSPENDED = JobStatus.IDLE, JobStatus.RUNNING, JobStatus.HELD, JobStatus.SUSPENDED
REMOVED, COMPLETED = JobStatus.REMOVED, JobStatus.COMPLETED
ACTIVE = tuple(status for status in JobStatus if status.has_machine)

#: The universes (HTCondor's numbers: scheduler, local) whose jobs run on the submit machine.
LOCAL_UNIVERSES = frozenset({7, 12})

#: The attribute of a work flow's own job, for which no program is started anywhere: its DAG file.
WORKFLOW = "WorkflowFile"

#: Attributes with which a job asks for the dedicated scheduler, and the universes of parallel jobs.
DEDICATED, PARALLEL = frozenset({"WantDedicated", "WantParallelScheduling"}), frozenset({8, 11})

#: Attributes (lower case) in which every job is another than those of other clusters.
NUMBERS = frozenset({"clusterid", "procid"})

#: Parts that clusters have in common for which it is kept where their jobs were put.
MOST_BEFORE = 64

Wire = dict[str, Any]
JobId = tuple[int, int]


class QueuedCluster:
    """The part that the processes of one submit share: an ad that never changes after the submit, kept packed."""

    __slots__ = (
        *("_parts", "is_local", "is_workflow", "coming", "cost", "cron", "dedicated", "deferred", "group"),
        *("grouped", "id", "jobs", "matters", "owner", "plain_names", "prio", "turns"),
    )

    def __init__(self, cluster: int, owner: str, wire: Wire) -> None:
        self.id = cluster
        self.owner = owner
        self._parts = parted(wire)
        #: Its jobs run beside the schedd, and no machine is asked for them.
        self.is_workflow = WORKFLOW in wire
        self.is_local = wire.get("JobUniverse") in LOCAL_UNIVERSES and not self.is_workflow
        #: Its jobs may have a moment before which they do not start; `cron`: again and again.
        self.deferred = "DeferralTime" in wire
        #: Its jobs may be the dedicated scheduler's.
        self.dedicated = not DEDICATED.isdisjoint(wire) or wire.get("JobUniverse") in PARALLEL
        self.cron = self.deferred and any(name in wire for name in CRONTAB)
        #: The group whose turn it is, where not all jobs are asked for at once.
        self.turns: Materialization | None = None
        if any(name in wire for name in materialization.NAMES):
            ad = self.ad
            bounds = materialization.MaterializationLimits.from_ad(
                {name: ad.value(name) for name in materialization.NAMES}
            )
            self.turns = Materialization(bounds) if bounds is not None else None
        #: Processor seconds that its submit took for each job.
        self.cost = 0.0
        self.jobs: PagedTable[QueuedJob] = PagedTable()
        self.coming = False  # more of its jobs are being put in: it stays though those that are there leave
        #: Names (lower case) by which its jobs may be matched or ordered differently, and the group and place of those
        #: that differ in none; as of the queue's grouping of that number.
        self.matters: frozenset[str] = frozenset()
        #: Names that one of its jobs had beyond the cluster's, of which none matters: the next often has the same.
        self.plain_names: tuple[str, ...] | None = None
        self.group: JobGroup | None = None
        self.prio = 0.0
        self.grouped = 0

    @property
    def wire(self) -> Wire:
        """The ad in wire form; not to be changed."""
        return wire_of(self._parts)

    @property
    def ad(self) -> ClassAd:
        """The ad; not to be changed."""
        return ad_of(self._parts)

    @property
    def shared(self) -> bytes:
        """The part of the ad that clusters submitted one after the other mostly have in common, packed."""
        return self._parts[0]

    @property
    def layers(self) -> tuple[Wire, Wire]:
        """The ad as two maps in wire form, for a look at a few attributes; not to be changed."""
        return layers_of(self._parts)


class _Place:
    """The group and place that the plain jobs of a cluster got, for clusters like it.

    Attributes:
        grouping: the queue's at that time.
    """

    __slots__ = ("_own", "_own_names", "group", "grouping", "matters", "prio")

    def __init__(self, grouping: int, cluster: QueuedCluster) -> None:
        self.grouping = grouping
        self.matters = cluster.matters
        self.group = cluster.group
        self.prio = cluster.prio
        #: The names of the cluster's own part that matter; None where no two clusters are alike.
        self._own_names = None if NUMBERS & self.matters else tuple(n for n in OF_ITS_OWN if fold(n) in self.matters)
        self._own = self._own_of(cluster)

    def is_like(self, cluster: QueuedCluster) -> bool:
        """Whether another cluster with the same part in common is the same in what matters."""
        return self._own_names is not None and self._own_of(cluster) == self._own

    def _own_of(self, cluster: QueuedCluster) -> bytes:
        own, _ = cluster.layers
        return pack([(name, own[name]) for name in self._own_names or () if name in own])


class QueuedJob:
    """One process of a cluster: its status, and what its ad has beyond the cluster's.

    `delta` came with the submit and never changes; `state` is what happened since. `notes`, whose names begin with
    "_", are the schedd's own (claim ids among them) and never part of the ad.
    """

    __slots__ = ("cluster", "cost", "delta", "group", "notes", "prio", "proc", "run", "state", "status")

    def __init__(self, cluster: QueuedCluster, proc: int, status: int, delta: Wire | None, kept: Wire | None) -> None:
        self.cluster = cluster
        self.proc = proc
        self.status = JobStatus(status)
        self.delta = delta
        self.state: Wire | None = None
        self.notes: Wire | None = None
        if kept:
            self.update(kept)
        self.prio = 0.0
        self.group: JobGroup | None = None
        self.run: Any = None
        self.cost = 0.0  # processor seconds that it took of the node, beside what meters count, since its last run

    @property
    def id(self) -> JobId:
        return (self.cluster.id, self.proc)

    def own_wire(self) -> Wire:
        """The wire form of what this job adds to its cluster's ad."""
        return self._wire_over({})

    def ad(self) -> ClassAd:
        """The whole job ad, made anew: the caller may add to it."""
        return ClassAd.from_wire(self.own_wire(), parent=self.cluster.ad)

    def wire(self) -> Wire:
        """The whole job ad in wire form."""
        return self._wire_over(self.cluster.wire)

    def _wire_over(self, below: Wire) -> Wire:
        wire = {**below, **self.delta} if self.delta else below.copy()
        if self.state:
            wire |= self.state
        wire["ClusterId"], wire["ProcId"], wire["JobStatus"] = self.cluster.id, self.proc, self.status.value
        return wire

    def packed_changes(self) -> bytes:
        """The changes since its submit, packed; `QueuedJob` takes them unpacked."""
        if self.notes:
            return pack({**(self.state or {}), **self.notes})
        return pack(self.state) if self.state else b""

    def negotiation_answer(self) -> Wire:
        """The negotiation's answer about an idle job, by HTCondor's names; shown, and never matched by."""
        turns = self.cluster.turns
        if turns is not None and self.status == IDLE and turns.is_out_of_turn(self.proc):
            return {"WaitsForTurn": True}
        rejected = self.group.rejected if self.group is not None else None
        if rejected is None:
            return {}
        return {"LastRejMatchReason": rejected[0], "LastRejMatchTime": int(rejected[1])}

    def get(self, name: str, default: Any = None) -> Any:
        """A literal attribute by its canonical name without making an ad; expressions come as `[text]`."""
        if self.state and name in self.state:
            return self.state[name]
        if self.delta and name in self.delta:
            return self.delta[name]
        return self.cluster.wire.get(name, default)

    def stored_note(self, name: str, default: Any = None) -> Any:
        """One of the schedd's own notes."""
        return self.notes.get(name, default) if self.notes else default

    def update(self, changes: Mapping[str, Any]) -> None:
        """Set attributes of this job's own state, or notes; a value of None takes one away.

        Maps that other jobs may have, too, are never changed: this one gets its own.
        """
        state, notes = dict(self.state or ()), dict(self.notes or ())
        for name, value in changes.items():
            where = notes if name[0] == "_" else state
            if value is None:
                where.pop(name, None)
            else:
                where[name] = value
        self.state, self.notes = state or None, notes or None

    def become_like(self, other: QueuedJob) -> None:
        """Have the state and the notes of another job from now on."""
        self.state, self.notes = other.state, other.notes


def asked_by(prio: Expr) -> frozenset[str]:
    """The attributes of a job's ad that PRIO reads, by lower-case names."""
    return frozenset({"jobprio", "numjobstarts", *map(fold, prio.references())})


class TurnListener(Protocol):
    """Hears of the turns of a cluster's jobs (`max_materialize` and its like)."""

    def pause(self, cluster: QueuedCluster) -> None:
        """A job has started that wants a pause before the next one starts."""

    def gave_turns(self, cluster: QueuedCluster) -> None:
        """The turn of other jobs of the cluster has come by a change of one."""


class JobQueue:
    """All jobs of one schedd.

    Args:
        prio: the PRIO control expression, evaluated against each job's ad.
        machine_references: names that machines' expressions refer to in a job's ad; see `add_references`.
        keeps_back: which idle jobs the schedd keeps back: they are idle, and neither asked for nor started.
        keeps_some_back: whether any may be kept back of the jobs that are like one and differ from it in their numbers
            only.
    """

    def __init__(
        self,
        prio: Expr,
        machine_references: frozenset[str] = frozenset(),
        *,
        keeps_back: Callable[[QueuedJob], bool] | None = None,
        keeps_some_back: Callable[[QueuedJob], bool] | None = None,
    ) -> None:
        self.clusters: PagedTable[QueuedCluster] = PagedTable()
        #: Of those the ones whose jobs may be the dedicated scheduler's.
        self.dedicated: PagedTable[QueuedCluster] = PagedTable()
        #: The highest number of a cluster that ever came in.
        self.newest = 0
        self.counts: dict[str, dict[int, int]] = {}
        self.keeps_back = keeps_back or _is_never_so
        self._keeps_some_back = keeps_some_back or (_is_never_so if keeps_back is None else _may_be_so)
        self._turn_listeners: list[TurnListener] = []
        self._prio = prio
        self._asked = asked_by(prio)
        self._groups: dict[tuple[str, bytes], JobGroup] = {}
        self._numbers: dict[int, JobGroup] = {}
        self._next_group = 1
        self._grouping = 1
        self._regrouping: Iterator[None] = iter(())
        #: Where clusters before were put, by owner and the part that they have in common.
        self._before: dict[tuple[str, bytes], _Place] = {}
        #: Jobs that are kept back may still have places in groups.
        self._looks_at_first = False
        self._autoclusters = autoclusters.Autoclusters(machine_references)

    def __len__(self) -> int:
        return sum(len(cluster.jobs) for cluster in self.clusters.values())

    def listen_turns(self, listener: TurnListener) -> None:
        """Tell this listener of turns from now on."""
        self._turn_listeners.append(listener)

    def jobs(self) -> Iterator[QueuedJob]:
        for cluster in self.clusters.values():
            yield from cluster.jobs.values()

    def find(self, cluster: int, proc: int) -> QueuedJob | None:
        found = self.clusters.get(cluster)
        return found.jobs.get(proc) if found else None

    def owners(self) -> list[str]:
        """Users with jobs in the queue."""
        return [owner for owner, counts in self.counts.items() if any(counts.values())]

    def count(self, owner: str, *statuses: int) -> int:
        counts = self.counts.get(owner, {})
        return sum(counts.get(status, 0) for status in statuses)

    # -- changes -----------------------------------------------------------------------------------------

    def add_cluster(self, cluster: QueuedCluster) -> None:
        self.clusters[cluster.id] = cluster
        self.newest = max(self.newest, cluster.id)
        if cluster.dedicated:
            self.dedicated[cluster.id] = cluster

    def add(self, job: QueuedJob) -> None:
        """Put a job in, in the status it has."""
        job.cluster.jobs[job.proc] = job
        counts = self.counts.setdefault(job.cluster.owner, {})
        counts[job.status] = counts.get(job.status, 0) + 1
        self._pass_turns(job, None, job.status)
        if job.status == IDLE and job.group is None:
            self._enqueue(job)

    def add_alike(self, jobs: Sequence[QueuedJob]) -> None:
        """Put jobs in that follow each other in one cluster, have one status, and are alike but for their own
        differences."""
        cluster, status = jobs[0].cluster, jobs[0].status
        if cluster.turns is not None or len(jobs) == 1:
            for job in jobs:
                self.add(job)
            return
        cluster.jobs.insert_range(jobs[0].proc, jobs)
        counts = self.counts.setdefault(cluster.owner, {})
        counts[status] = counts.get(status, 0) + len(jobs)
        if status == IDLE:
            self._enqueue_alike(jobs)

    def _pass_turns(self, job: QueuedJob, before: JobStatus | None, after: JobStatus | None) -> None:
        """Give the turns of a cluster on, where not all of its jobs are asked for at once."""
        turns = job.cluster.turns
        if turns is None:
            return
        started = turns.job_changed(
            job.proc, before, after, begun=after is not None and bool(job.get("NumJobStarts", 0))
        )
        if started and turns.paused:
            self.pause(job.cluster)
            for listener in self._turn_listeners:
                listener.pause(job.cluster)
        self._admit_next(job.cluster)

    def _admit_next(self, cluster: QueuedCluster) -> None:
        """Let those jobs of a cluster be asked for whose turn it is."""
        if cluster.turns is not None and (procs := cluster.turns.admit()):
            for proc in procs:
                if (job := cluster.jobs.get(proc)) is not None:
                    self.admit(job)
            if not cluster.coming:
                for listener in self._turn_listeners:
                    listener.gave_turns(cluster)

    def pause(self, cluster: QueuedCluster) -> None:
        """Start no other job of a cluster until `resume`."""
        if cluster.turns is not None:
            cluster.turns.paused = True
            for proc in cluster.turns.withdrawn():
                self.edited(cluster.jobs[proc])

    def resume(self, cluster: QueuedCluster) -> None:
        """The pause between two starts of a cluster is over."""
        if cluster.turns is not None:
            cluster.turns.paused = False
            self._admit_next(cluster)

    def set_status(self, job: QueuedJob, status: JobStatus) -> None:
        """Move a job to another status; it enters or leaves the idle order with it."""
        if job.status == status:
            return
        counts = self.counts[job.cluster.owner]
        counts[job.status] -= 1
        counts[status] = counts.get(status, 0) + 1
        before, was_idle = job.status, job.status == IDLE
        job.status = status
        if was_idle:
            self._leave_group(job)
        self._pass_turns(job, before, status)
        if status == IDLE and job.group is None:
            self._enqueue(job)

    def set_alike_status(self, jobs: Sequence[QueuedJob], status: JobStatus) -> None:
        """Move jobs that are alike, as those of `add_alike`, to another status."""
        cluster, before = jobs[0].cluster, jobs[0].status
        if cluster.turns is not None:
            for job in jobs:
                self.set_status(job, status)
            return
        counts = self.counts[cluster.owner]
        counts[before] -= len(jobs)
        counts[status] = counts.get(status, 0) + len(jobs)
        for job in jobs:
            job.status = status
        if before == IDLE:
            self._leave_groups(jobs)
        if status == IDLE:
            self._enqueue_alike(jobs)

    def remove_alike(self, jobs: Sequence[QueuedJob]) -> bool:
        """Take out jobs that are alike, as those of `add_alike`; True when the cluster goes with them."""
        cluster = jobs[0].cluster
        if cluster.turns is not None:
            return [self.remove(job) for job in jobs][-1]
        counts = self.counts[cluster.owner]
        counts[jobs[0].status] -= len(jobs)
        self._leave_groups(jobs)
        cluster.jobs.remove_range(jobs[0].proc, len(jobs))
        return self._goes_when_empty(cluster, counts)

    def remove(self, job: QueuedJob) -> bool:
        """Take a job out of the queue; True when it was the last of its cluster, which goes with it."""
        counts = self.counts[job.cluster.owner]
        counts[job.status] -= 1
        self._leave_group(job)
        del job.cluster.jobs[job.proc]
        self._pass_turns(job, job.status, None)
        return self._goes_when_empty(job.cluster, counts)

    def _goes_when_empty(self, cluster: QueuedCluster, counts: dict[int, int]) -> bool:
        if not any(counts.values()):
            del self.counts[cluster.owner]
        if not cluster.jobs and not cluster.coming:
            self.remove_cluster(cluster)
            return True
        return False

    def remove_cluster(self, cluster: QueuedCluster) -> None:
        """Take out a cluster whose jobs are all gone."""
        del self.clusters[cluster.id]
        self.dedicated.pop(cluster.id)

    def edited(self, job: QueuedJob) -> None:
        """Put an idle job where it belongs after its attributes changed (another priority)."""
        if job.status != IDLE or job.group is None:
            return
        if self.is_withheld(job):
            self._leave_group(job)
            return
        group, prio = self._place_of(job)
        if group is not job.group or prio != job.prio:
            self._leave_group(job)
            self._enter_group(job, group, prio)

    def add_references(self, references: frozenset[str]) -> bool:
        """Take in which job attributes machines refer to; True when `regroup` has work to do."""
        if references <= self._autoclusters.references:
            return False
        self._autoclusters = autoclusters.Autoclusters(self._autoclusters.references | references)
        self._group_anew()
        return True

    def reprioritise(self, prio: Expr) -> bool:
        """Another PRIO expression (configuration re-read); True when `regroup` has work to do."""
        if prio.text == self._prio.text:
            return False
        self._prio = prio
        self._asked = asked_by(prio)
        self._group_anew()
        return True

    def _group_anew(self) -> None:
        self._grouping += 1
        self._regrouping = self._put_in_groups()

    def regroup(self) -> Iterator[None]:
        """Put idle jobs into the groups and places that are theirs by now, one in each step; until that is done some
        stand in groups that are coarser than they should be. Ends early where it is begun anew.
        """
        mine = self._regrouping
        while mine is self._regrouping and next(mine, self) is None:
            yield

    def _put_in_groups(self) -> Iterator[None]:
        for cluster in self.clusters.values():
            for job in cluster.jobs.values():
                if job.group is not None:
                    self.edited(job)
                elif cluster.jobs.get(job.proc) is job:
                    self.admit(job)
                yield
        self._looks_at_first = False

    def admit(self, job: QueuedJob) -> None:
        """A job that was kept back may have come to be kept back no more: it takes its place."""
        if job.status == IDLE and job.group is None:
            self._enqueue(job)

    def withdraw_withheld(self) -> None:
        """Other jobs may be kept back than before: those give up their places, in `regroup` or before one of them is
        the first of its group, and `regroup` gives the others theirs."""
        self._looks_at_first = True
        self._regrouping = self._put_in_groups()

    # -- the idle order ----------------------------------------------------------------------------------

    def groups(self, owner: str) -> list[JobGroup]:
        """The owner's groups with idle jobs, the one whose first job comes first in front."""
        heads: list[tuple[tuple[float, int, int], int, JobGroup]] = []
        for group in list(self._groups.values()):  # one whose jobs are all kept back may go
            if group.owner == owner and group.idle:
                head = self._head(group)
                if head is not None:
                    heads.append((head, group.id, group))
        heads.sort()
        return [group for _, _, group in heads]

    def waiting(self, owner: str, of: Charge) -> int:
        """How many of an owner's idle jobs are charged like that."""
        return sum(group.idle for group in self._groups.values() if group.owner == owner and group.charge == of)

    def group(self, number: int) -> JobGroup | None:
        return self._numbers.get(number)

    def first(self, group: JobGroup) -> QueuedJob | None:
        """The job of the group that comes first, left where it is."""
        head = self._head(group)
        return self.find(head[1], head[2]) if head else None

    def _head(self, group: JobGroup) -> tuple[float, int, int] | None:
        while (head := group.order.first()) is not None and self._looks_at_first:
            job = self.find(head[1], head[2])
            if job is None or not self.is_withheld(job):
                break
            self.edited(job)
        return head

    def is_withheld(self, job: QueuedJob) -> bool:
        """Whether an idle job is neither asked for nor started now."""
        return self.is_out_of_turn(job) or self.keeps_back(job)

    @staticmethod
    def is_out_of_turn(job: QueuedJob) -> bool:
        """Whether other jobs of its cluster come first (max_idle, max_materialize)."""
        turns = job.cluster.turns
        return turns is not None and turns.is_out_of_turn(job.proc)

    def _enqueue(self, job: QueuedJob) -> None:
        if not self.is_withheld(job):
            self._enter_group(job, *self._place_of(job))

    def _enqueue_alike(self, jobs: Sequence[QueuedJob]) -> None:
        """The same for jobs that are alike, as those of `add_alike`, and stand in no group."""
        first = jobs[0]
        if self._looks_at_first or self._keeps_some_back(first) or any(job.delta for job in jobs):
            for job in jobs:
                self._enqueue(job)
            return
        group, prio = self._place_of(first)
        if self._differs(first):
            for job in jobs:
                self._enter_group(job, *self._place_of(job))
            return
        group = self._known_group(group)
        for job in jobs:
            job.group, job.prio = group, prio
        group.jobs_added(prio, first.cluster.id, first.proc, len(jobs))

    def _place_of(self, job: QueuedJob) -> tuple[JobGroup, float]:
        """The group that an idle job belongs to, and its place by PRIO there."""
        cluster = job.cluster
        fresh = cluster.grouped != self._grouping
        if fresh and not (job.delta or job.state) and self._is_as_before(cluster):
            assert cluster.group is not None
            return cluster.group, cluster.prio
        if fresh:
            ad = {fold(name): value for name, value in cluster.wire.items()}
            cluster.matters = self._autoclusters.significant(ad) | self._asked
            cluster.group, cluster.plain_names, cluster.grouped = None, None, self._grouping
        plain = not self._differs(job)
        if plain and cluster.group is not None:
            return cluster.group, cluster.prio
        ad = {fold(name): value for name, value in job.wire().items()}
        group, prio = self._group_of(job, ad), self._priority(job, ad)
        if plain:
            cluster.group, cluster.prio = group, prio
            if not any(type(ad.get(name)) is list for name in self._asked):  # an expression may refer to anything
                self._remember_place(cluster)
        return group, prio

    def _remember_place(self, cluster: QueuedCluster) -> None:
        self._before[cluster.owner, cluster.shared] = _Place(self._grouping, cluster)
        if len(self._before) > MOST_BEFORE:
            del self._before[next(iter(self._before))]

    def _is_as_before(self, cluster: QueuedCluster) -> bool:
        """Whether a cluster that has come has the part in common with one before it, and is like it in all that
        matters: it gets the same group and place then."""
        before = self._before.get((cluster.owner, cluster.shared))
        if before is None or before.grouping != self._grouping or not before.is_like(cluster):
            return False
        cluster.matters, cluster.group, cluster.prio = before.matters, before.group, before.prio
        cluster.plain_names, cluster.grouped = (), self._grouping
        return True

    def _enter_group(self, job: QueuedJob, group: JobGroup, prio: float) -> None:
        group = self._known_group(group)
        job.group, job.prio = group, prio
        group.job_added(prio, job.cluster.id, job.proc)

    def _known_group(self, group: JobGroup) -> JobGroup:
        """The group by its owner and signature: one without idle jobs may have been forgotten."""
        if not group.idle:
            group = self._groups.setdefault((group.owner, group.signature), group)
            self._numbers[group.id] = group
        return group

    def _differs(self, job: QueuedJob) -> bool:
        """Whether a job may be matched or ordered otherwise than its cluster's others."""
        cluster = job.cluster
        names = (*(job.delta or ()), *(job.state or ()))
        if names == cluster.plain_names:
            return False
        if autoclusters.OF_EACH_JOB in cluster.matters or any(fold(name) in cluster.matters for name in names):
            return True
        cluster.plain_names = names
        return False

    def _group_of(self, job: QueuedJob, ad: Wire) -> JobGroup:
        owner = job.cluster.owner
        signature = self._autoclusters.signature(ad)
        group = self._groups.get((owner, signature))
        if group is None:
            group = JobGroup(self._next_group, owner, signature, job.ad())
            self._next_group += 1
        return group

    def _leave_group(self, job: QueuedJob) -> None:
        """Take a job out of its group, if it is in one; a group without jobs is forgotten."""
        group = job.group
        if group is None:
            return
        job.group = None
        group.job_removed(job.prio, job.cluster.id, job.proc)
        self._forget_if_empty(group)

    def _leave_groups(self, jobs: Sequence[QueuedJob]) -> None:
        """The same for jobs that follow each other in one cluster, which may stand in different groups."""
        for (group, prio), some in groupby(jobs, lambda job: (job.group, job.prio)):
            if group is None:
                continue
            members = list(some)
            for job in members:
                job.group = None
            group.jobs_removed(prio, members[0].cluster.id, members[0].proc, len(members))
            self._forget_if_empty(group)

    def _forget_if_empty(self, group: JobGroup) -> None:
        if group.idle == 0:
            self._groups.pop((group.owner, group.signature), None)
            self._numbers.pop(group.id, None)

    def _priority(self, job: QueuedJob, ad: Wire) -> float:
        """Its place by PRIO.

        Args:
            ad: the whole ad, by lower-case names.
        """
        asked = {name: ad[name] for name in self._asked if name in ad}
        whole: ClassAd | None = None
        if any(type(value) is list for value in asked.values()):  # an expression may refer to anything
            whole = job.ad()
            asked = {name: whole.value(name, 0) for name in ("jobprio", "numjobstarts")}
        prio = asked.get("jobprio", 0)
        asked["UserPrio"] = prio if isinstance(prio, (int, float)) else 0
        asked["Expanded"] = 1 if asked.get("numjobstarts", 0) else 0
        value = evaluate(self._prio, ClassAd.from_wire(asked, whole))
        return float(value) if isinstance(value, (int, float)) and not math.isnan(value) else 0.0


def _is_never_so(job: QueuedJob) -> bool:
    return False


def _may_be_so(job: QueuedJob) -> bool:
    return True
