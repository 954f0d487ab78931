"""The dedicated jobs of the queue as the decisions see them: whose, how many machines, of which kinds.

A request of a part is matched with all machines at once, and requests that no expression can tell apart once for all.
Jobs of a cluster that have never run and differ in nothing but their number are read once (`JobTemplate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pool.classad import ClassAd
from pool.classad.names import fold
from pool.jobs.gangs import APART, EXPECTED_DURATION, RESERVATION, GangParts, parts_of
from pool.policy.autoclusters import OF_EACH_JOB, Autoclusters
from pool.policy.checkpoints import CheckpointWish, wish_of
from pool.policy.dedicated import DedicatedJob, DedicatedMachine, PartClass
from pool.policy.dedicated.model import Kind
from pool.policy.exits import DURATIONS
from pool.policy.gangs import Gathering
from pool.policy.managed import SCHEDULER
from pool.policy.matching import SlotIndex
from pool.policy.matching.bits import Bits
from pool.policy.packed import pack
from pool.policy.queue import QueuedJob, Wire
from pool.policy.slot_names import machine_of_slot
from pool.roles.schedd.dedicated.machines import slot_of

#: Requests that are remembered.
MOST_REMEMBERED = 20_000
#: Attributes that do not matter to the match of one part.
_WHOLE = frozenset({"gangparts", "gangapart"})


class PartsToPlace(Protocol):
    """GangParts of a gang that have yet to get a claim; see `Gatherings.progress_of`."""

    def progress_of(self, job: QueuedJob) -> Gathering: ...

    def wanted_ad(self, job: QueuedJob, part: int) -> Wire: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """GangParts of a job that ask for the same.

    Attributes:
        numbers: of these parts.
        request: what it asks for, by a text that equal requests share.
        ad: its ad in wire form.
        apart: no two of the job's parts may be on one machine.
    """

    numbers: tuple[int, ...]
    request: str
    ad: Wire
    apart: bool


@dataclass(slots=True, eq=False)
class JobTemplate:
    """The part that jobs have in common which differ in nothing but their number.

    Attributes:
        cluster: the wire form that it was read from: another one is read again.
        wanted: their parts.
        view: such a job in the present cycle.
    """

    cluster: Wire
    wanted: list[Wanted]
    view: DedicatedJob | None = None


class DedicatedQueue:
    """The dedicated jobs of one schedd.

    Args:
        submitter: the scheduler's name.
        gatherings: say what of a gang is still to be placed.
        predict: how long a user's next job will probably run, given what the user says and how many machines it needs.
    """

    def __init__(
        self,
        submitter: str,
        gatherings: PartsToPlace,
        index: SlotIndex,
        predict: Callable[[str, float | None, int], float | None],
    ) -> None:
        self._predict = predict
        self._now = 0.0
        self._submitter = submitter
        self._gatherings = gatherings
        self._index = index
        self._clusters = Autoclusters()
        self._signatures: dict[tuple[Any, ...], str] = {}
        self._requests: dict[str, ClassAd] = {}
        self._numbers: dict[bytes, str] = {}
        self._templates: dict[tuple[int, bytes], JobTemplate] = {}

    @property
    def now(self) -> float:
        """When the present cycle began, wall time."""
        return self._now

    def wanted(self, job: QueuedJob) -> list[Wanted]:
        """The parts of a job that need a machine, alike ones together.

        Raises:
            PoolError: its parts cannot be read.
        """
        template = self._template(job)
        return template.wanted if template is not None else self._wanted(job)

    def _template(self, job: QueuedJob) -> JobTemplate | None:
        """The template of a job; None for one that is like no other."""
        if job.state:
            return None
        key = (job.cluster.id, pack(job.delta) if job.delta else b"")
        known = self._templates.get(key)
        if known is not None and known.cluster is job.cluster.wire:
            return known
        wire = job.wire()
        if OF_EACH_JOB in self._clusters.significant({fold(name): value for name, value in wire.items()}):
            return None
        if len(self._templates) > MOST_REMEMBERED:
            self._templates.clear()
        made = self._templates[key] = JobTemplate(job.cluster.wire, self._wanted(job))
        return made

    def _wanted(self, job: QueuedJob) -> list[Wanted]:
        parts = parts_of(job.ad()) if is_gang(job) else GangParts(())
        if not len(parts):
            return [self._alike(job, (0,), 0, apart=False)]
        gathering = self._gatherings.progress_of(job)
        apart = job.get(APART) is True
        found: list[Wanted] = []
        for kind in range(len(parts.kinds)):
            numbers = tuple(n for n in parts.numbers_of(kind) if n not in gathering.over)
            if numbers:
                found.append(self._alike(job, numbers, kind, apart=apart))
        together: dict[str, Wanted] = {}
        for one in found:
            before = together.get(one.request)
            together[one.request] = replace(one, numbers=(*before.numbers, *one.numbers)) if before else one
        return list(together.values())

    def _alike(self, job: QueuedJob, numbers: tuple[int, ...], kind: int, *, apart: bool) -> Wanted:
        wire = self.request_ad(job, numbers[0])
        delta = pack(job.delta) if job.delta else b""
        known = (job.cluster.id, kind, delta, repr(wire.get("Requirements")))
        request = self._signatures.get(known)
        if request is None:
            if len(self._signatures) > MOST_REMEMBERED:
                self._forget()
            folded = {name: value for key, value in wire.items() if (name := fold(key)) not in _WHOLE}
            signature = self._clusters.signature(folded)
            request = self._numbers.setdefault(signature, f"q{len(self._numbers) + 1}")
            self._signatures[known] = request
            self._requests.setdefault(request, ClassAd.from_wire(wire))
        return Wanted(numbers, request, wire, apart)

    def request_ad(self, job: QueuedJob, part: int) -> Wire:
        """The demands of a part of a job, as a request of this scheduler (WR 3.1)."""
        wire = self._gatherings.wanted_ad(job, part) if is_gang(job) else job.wire()
        return {**wire, SCHEDULER: self._submitter}

    def _forget(self) -> None:
        self._signatures.clear()
        self._requests.clear()
        self._numbers.clear()
        self._templates.clear()

    def begin_cycle(self, now: float) -> None:
        """Take in what the machines look at in a request: requests are told apart by that."""
        self._now = now
        references = self._index.references()
        if not references <= self._clusters.references:
            self._clusters = Autoclusters(self._clusters.references | references)
            self._forget()
        for template in self._templates.values():
            template.view = None

    def plain(self, request: str, wire: Wire, count: int) -> Wanted:
        """Machines that are asked for without a job."""
        wire = {**wire, SCHEDULER: self._submitter}
        self._requests[request] = ClassAd.from_wire(wire)
        return Wanted(tuple(range(count)), request, wire, False)

    def ad_of(self, request: str) -> ClassAd:
        """The ad of a request."""
        return self._requests[request]

    def kinds(
        self, wanted: Iterable[Wanted], machines: Iterable[DedicatedMachine], now: float
    ) -> Generator[None, None, tuple[list[DedicatedMachine], Mapping[str, tuple[Kind, ...]]]]:
        """The machines with their kinds, and the kinds that fit each request; in steps.

        Machines that match the same requests are one kind, so that there are few kinds whatever their ads hold.
        """
        apart: dict[str, bool] = {}
        for one in wanted:
            apart[one.request] = apart.get(one.request, False) or one.apart
        yield
        index, listed = self._index, list(machines)
        slots = {slot_of(machine.name) for machine in listed}
        known = index.set_of(slots)
        yield
        # Of slots on one machine only the first can hold a part of a job whose parts have to be apart.
        shared = any(apart.values()) and len({machine_of_slot(slot) for slot in slots}) < len(slots)
        classes: list[tuple[Bits, tuple[str, ...]]] = [(known, ())]
        for request, separate in sorted(apart.items()):
            matching = index.matches(index.pair(self.ad_of(request), now)) & known
            if separate and shared:
                first = {machine_of_slot(slot): slot for slot in reversed(index.names(matching))}
                matching = index.set_of(first.values())
            split: list[tuple[Bits, tuple[str, ...]]] = []
            for bits, signature in classes:
                if inside := bits & matching:
                    split.append((inside, (*signature, request)))
                if outside := bits & ~matching:
                    split.append((outside, signature))
            classes = split
            yield
        placed: dict[str, Kind] = {}
        fits: dict[str, list[Kind]] = {request: [] for request in apart}
        numbered = sorted((one for one in classes if one[1]), key=lambda one: one[0] & -one[0])
        for number, (bits, signature) in enumerate(numbered, 1):
            kind = f"k{number}"
            for slot in index.names(bits):
                placed[slot] = kind
            for request in signature:
                fits[request].append(kind)
            yield
        # Further pieces of a partitionable slot are of another kind where a job's parts have to be apart.
        more: dict[Kind, Kind] = {}
        if any(apart.values()):
            for number, (_, signature) in enumerate(numbered, 1):
                more[f"k{number}"] = f"k{number}+"
                for request in signature:
                    if not apart[request]:
                        fits[request].append(f"k{number}+")
        found: list[DedicatedMachine] = []
        seen: set[str] = set()
        for count, machine in enumerate(listed):
            slot = slot_of(machine.name)
            placed_kind = placed.get(slot)
            if placed_kind is None:
                continue
            if slot in seen:
                placed_kind = more.get(placed_kind, placed_kind)
            elif more:
                seen.add(slot)
            found.append(DedicatedMachine(machine.name, placed_kind, machine.state, machine.idle_since, machine.until))
            if not count % 500:
                yield
        return found, {request: tuple(kinds) for request, kinds in fits.items()}

    def job_of(self, job: QueuedJob, wanted: list[Wanted], fits: Mapping[str, tuple[Kind, ...]]) -> DedicatedJob:
        """An idle job as the decisions see it."""
        template = self._template(job)
        if template is not None and template.view is not None:
            return replace(template.view, id=name_of(job))
        parts = tuple(PartClass(len(one.numbers), fits.get(one.request, ())) for one in wanted)
        made = self._view(job, parts)
        if template is not None:
            template.view = made
        return made

    def running_job(self, job: QueuedJob, machines: int) -> DedicatedJob:
        """A job that runs on so many machines."""
        return self._view(job, (PartClass(machines, ()),))

    def _view(self, job: QueuedJob, parts: tuple[PartClass, ...]) -> DedicatedJob:
        said = longest_run(job, self._now)
        size = sum(part.count for part in parts)
        return DedicatedJob(
            id=name_of(job),
            user=job.cluster.owner,
            parts=parts,
            submitted=_number(job.get("QDate")),
            priority=int(_number(job.get("JobPrio"))),
            duration=said,
            predicted=self._predict(job.cluster.owner, said, size),
            saveable=can_be_saved(job),
            attained=_number(job.get("CommittedTime")),
            reservation=str(job.get(RESERVATION) or ""),
            group=str(job.get("AcctGroup") or "").lower(),
        )


def longest_run(job: QueuedJob, now: float) -> float | None:
    """Seconds that a job will run in all, as its user says: `expected_duration`, and no more than what it ran for
    already and the longest run that it is allowed (`allowed_job_duration`, `allowed_execute_duration`).

    An attribute that comes to no positive number says nothing. None where none does.
    """
    before = _number(job.get("CommittedTime"))
    limits = [before + run for name in DURATIONS if (run := _seconds(job, name, now)) is not None]
    expected = _seconds(job, EXPECTED_DURATION, now)
    return min(limits if expected is None else [expected, *limits], default=None)


def _seconds(job: QueuedJob, name: str, now: float) -> float | None:
    value: object = job.get(name)
    if value is not None and not isinstance(value, (int, float)):
        value = job.ad().value(name, None, now=now)
    seconds = _number(value)
    return seconds if 0 < seconds < math.inf else None


def is_gang(job: QueuedJob) -> bool:
    """Whether a job needs several claims."""
    return job.get("GangParts") is not None


def name_of(job: QueuedJob) -> str:
    """A job's id as people know it."""
    return f"{job.id[0]}.{job.id[1]}"


def can_be_saved(job: QueuedJob) -> bool:
    """Whether a job can leave its machines and lose nothing, as far as is known."""
    if job.get("CheckpointTrouble") is not None:
        return False
    return wish_of(job.ad()) in (CheckpointWish.AUTO, CheckpointWish.REQUIRED)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
