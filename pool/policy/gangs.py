"""Gangs: which slots a job that needs several at once asks for, how long it holds some of them, and what its ends make.

A gang runs when it has a claim for each part, and not before. Claims come one after the other, so two gangs may each
hold a claim that the other lacks. Neither waits for that: a gang that is not whole `patience` seconds after its first
claim gives all of them back and pauses. The pause is random and grows each time, so that of two gangs that meet again
and again one is soon alone. Of one queue one gang gathers at a time. A slot that another job would have to leave is
only noted until every part has a claim or such a slot: no job is evicted for a gang that lacks another part. Plain
data, pure functions of a time and a chance.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pool.jobs.reasons import Evict
from pool.policy.slot_names import machine_of_slot

#: Seconds that a gang pauses which did not get whole: the first time and at most; between half of it and all of it.
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
#: Ends of a program by itself.
BY_ITSELF = ("exit", "signal", "misuse")
#: The sum of the parts' reports, with the largest where a sum makes no sense.
SUMS, LARGEST = ("user_cpu", "system_cpu", "sent", "received", "max_rss"), ("wall", "suspended")

Report = dict[str, Any]


@dataclass(slots=True)
class Gathering:
    """A gang on its way to be whole.

    Attributes:
        kinds: what each part asks for: equal for parts that may have each other's slots.
        apart: no two parts on one machine.
        held: the machine of each part that has a claim.
        coming: parts whose slots have been matched and are being claimed.
        over: parts that need none: they had ended before the checkpoint that the gang goes on from. anew: it goes on
            from none, since on the machines that it had its parts reach their files in other ways.
        offered: the slot that each part can have once the job there has left, which nobody has asked it yet to do.
        since: when the first of the present claims came.
        tries: how often it has given up. not_before: when it may ask again.
    """

    kinds: Sequence[Hashable]
    apart: bool = False
    held: dict[int, str] = field(default_factory=dict)
    coming: set[int] = field(default_factory=set)
    over: frozenset[int] = frozenset()
    anew: bool = False
    offered: dict[int, str] = field(default_factory=dict)
    since: float | None = None
    tries: int = 0
    not_before: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every part has a claim."""
        return len(self.held) + len(self.over) == len(self.kinds)

    @property
    def covered(self) -> bool:
        """Whether every part has a claim, or is offered a slot."""
        return bool(self.offered) and len(self.held.keys() | self.offered.keys() | self.over) == len(self.kinds)

    @property
    def machines(self) -> set[str]:
        """Where parts have a claim or are offered a slot."""
        return {*self.held.values(), *map(machine_of_slot, self.offered.values())}

    def wanted_parts(self, now: float) -> list[list[int]]:
        """The parts to ask for now, those together that ask for the same; where they must be apart, one alone: where
        the next may be depends on where that is."""
        if now < self.not_before or (self.apart and self.coming):
            return []
        alike: dict[Hashable, list[int]] = {}
        for part in self.free_of(range(len(self.kinds))):
            alike.setdefault(self.kinds[part], []).append(part)
        groups = list(alike.values())
        return [groups[0][:1]] if self.apart and groups else groups

    def assign_part(self, parts: Sequence[int], machine: str, now: float) -> int | None:
        """A slot was claimed for one of these parts: which has it; None when it is of no use."""
        if self.apart and machine in self.held.values():
            return None
        part = next((part for part in parts if part not in self.held), None)
        if part is not None:
            self.held[part] = machine
            self.since = now if self.since is None else self.since
        return part

    def offer(self, parts: Sequence[int], slot: str) -> int | None:
        """Another's slot was matched to one of these parts: to which; None when it is of no use."""
        if slot in self.offered.values() or (self.apart and machine_of_slot(slot) in self.machines):
            return None
        part = next(self.free_of(parts), None)
        if part is not None:
            self.offered[part] = slot
        return part

    def free_of(self, parts: Sequence[int]) -> Iterator[int]:
        """Those of these parts that need a slot and have none, nor one on its way; found as they are taken."""
        held, coming, offered, over = self.held, self.coming, self.offered, self.over
        for part in parts:
            if part not in held and part not in coming and part not in offered and part not in over:
                yield part

    def remove_part(self, part: int) -> None:
        """A claim is gone before the gang was whole."""
        self.held.pop(part, None)
        if not self.held:
            self.since = None

    def gives_up_at(self, patience: float) -> float | None:
        """When its claims are given back if it is not whole by then; None while it has none."""
        return None if self.since is None else self.since + patience

    def release_all(self, now: float, chance: float) -> None:
        """Give all claims back and pause.

        Args:
            chance: from 0 to 1.
        """
        pause = min(FIRST_PAUSE * 2**self.tries, LONGEST_PAUSE)
        self.held.clear()
        self.offered.clear()
        self.since = None
        self.tries += 1
        self.not_before = now + pause * (0.5 + chance / 2)


def ends_gang(report: Mapping[str, Any], on_failure: str) -> bool:
    """Whether the end of a part ends the gang: not by itself, or of a process that failed where that ends the job."""
    if report.get("cause") not in BY_ITSELF or report.get("output_error") or report.get("cause") == "misuse":
        return True
    return on_failure == "end" and any(end.get("failed") for end in report.get("ends") or ())


def failed(report: Mapping[str, Any]) -> bool:
    """Whether a part has ended by itself, but not well: by an exit code, a signal, a rank or a process that failed."""
    if report.get("cause") not in BY_ITSELF or report.get("cause") == "misuse" or report.get("output_error"):
        return False
    by_code = report.get("code") not in (None, 0) or report.get("signal") is not None
    return by_code or bool(report.get("rank_failed")) or any(end.get("failed") for end in report.get("ends") or ())


def explains(later: Mapping[str, Any], root: Mapping[str, Any], wished: bool) -> bool:
    """Whether a part's end is the reason for the end of another part that was reported before it.

    A part whose connection to a lost part has broken fails by itself, and its report may come first. So all
    parts report before such a failure is the job's end. If another part was lost, killed with its keeper, had to leave
    its machine or had used more than it may, that counts: the run ends, and the job goes on from its last checkpoint.

    Args:
        later: of a part that ended after `root` was reported. root: the report that ended the gang.
        wished: the job's user wanted it to leave its machines, so that parts that were asked to stop count, too.
    """
    if not failed(root) or later.get("cause") in BY_ITSELF or later.get("cause") == "start":
        return False
    asked = later.get("reason") in (None, str(Evict.VACATED)) and not wished
    return later.get("cause") in ("lost", "exceeded") or bool(later.get("keeper_lost")) or not asked


def merged(reports: Sequence[Report], processes: Sequence[str], root: int | None, on_failure: str) -> Report:
    """One report of all parts' ends, as `pool.roles.schedd.core.job_ends` takes it.

    Args:
        reports: in the order in which they came.
        processes: the names of the job's processes, in the order of the description.
        root: the index of the report that ended the gang; None when all parts ended by themselves.
        on_failure: what becomes of the job when a process fails (`pool.jobs.pipes.model.ON_FAILURE`).
    """
    first = reports[root] if root is not None else None
    if first is None and on_failure == "wait":
        first = next((one for one in reports if any(end.get("failed") for end in one.get("ends") or ())), None)
    ends = {end.get("name"): end for one in reports for end in one.get("ends") or ()}
    result = dict(first if first is not None else _last(reports, ends.get(processes[-1])))
    if result.get("cause") in BY_ITSELF:
        unbegun = {} if root is None else {name: _unbegun(name) for name in processes}
        result["ends"] = [(unbegun | ends)[name] for name in processes if name in unbegun | ends]
    result |= {name: sum(float(one.get(name) or 0) for one in reports) for name in SUMS}
    result |= {name: max(float(one.get(name) or 0) for one in reports) for name in LARGEST}
    result["max_rss"] = int(result["max_rss"])
    starts = [one["started"] for one in reports if one.get("started")]
    if starts:
        result["started"] = min(starts)
    result["core"] = any(one.get("core") for one in reports)
    for name in ("released", "costs"):  # of the one machine
        result.pop(name, None)
    return result


def _unbegun(name: str) -> Report:
    """The end of a process whose part had not begun when the gang ended."""
    nothing = {"code": None, "signal": None, "core": False, "failed": False}
    return {"name": name, **nothing, "with_job": True, "user_cpu": 0.0, "system_cpu": 0.0, "wall": 0.0, "max_rss": 0}


def taken_over(report: Mapping[str, Any]) -> Report:
    """The end of a part, for a start that goes on from a checkpoint later than that: what it used has been counted."""
    counted = {name: 0 for name in (*SUMS, *LARGEST) if name in report}
    ends = [{**end, "user_cpu": 0.0, "system_cpu": 0.0} for end in report.get("ends") or ()]
    return {**report, **counted, **({"ends": ends} if ends else {})}


def costs_of(parts: Iterable[Mapping[str, Any]]) -> Report:
    """The costs of the checkpoints of a run (`pool.jobs.costs`), from each part's own report: they are made at the same
    time, and each travels by itself.
    """
    costs_of_parts = [one for one in parts if one]
    largest = ("checkpoints", "seconds", "standstill", "committed")
    costs: Report = {name: max(float(one.get(name) or 0) for one in costs_of_parts) for name in largest}
    return costs | {"bytes": sum(int(one.get("bytes") or 0) for one in costs_of_parts)}


def _last(reports: Sequence[Report], end: Mapping[str, Any] | None) -> Report:
    """The job's end where nobody failed: that of its last process."""
    if end is None:
        return reports[-1]
    by_signal = end.get("signal") is not None
    own = {"cause": "signal" if by_signal else "exit", "code": end.get("code"), "signal": end.get("signal")}
    return {**reports[-1], **own, "said": ""}
