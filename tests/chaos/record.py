"""The facts of a round, whatever the pool says of it: who ran where and when, and the outcome of each job."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

#: schedd, cluster, process
JobName = tuple[str, int, int]


@dataclass(slots=True)
class Run:
    """One start of a program. `ended` is None while it runs; `whole` when it came to its own end."""

    number: int
    machine: str
    began: float
    ended: float | None = None
    whole: bool = False


@dataclass(slots=True)
class Outcome:
    """One row of a schedd's history."""

    status: str
    exit_code: int | None
    completions: int
    time: float


@dataclass(slots=True)
class Record:
    """All of a round.

    Attributes:
        accepted: jobs whose submit was answered.
        runs: the runs of programs, reported over a way that is never cut.
        outcomes: the schedds' histories in the end; told: the TERMINATED events of each.
        left: jobs that are still in a queue when all faults are long over.
        failures: roles that failed by themselves, and what else the pool must not do.
    """

    accepted: list[JobName] = field(default_factory=list)
    runs: dict[JobName, list[Run]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[JobName, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    told: dict[JobName, int] = field(default_factory=lambda: defaultdict(int))
    left: dict[JobName, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
