"""RESCHEDULE, SIMPLE NEGOTIATE and FIND SERVER of EV 3.5, written plainly, and that the cycle does the same.

The paper's submitters are machines whose priority goes down by one with each server they get; one negotiates until its
priority is lower than that of the next, or it has no jobs that fit. Preferences are a Rank of true or false; servers
are taken in the order of the list.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from pool.classad import ClassAd, parse_expr, symmetric_match
from pool.policy.negotiation import ResourceRequest
from tests.policy.negotiation.support import NOW, Slot, negotiate, picture_of, request, slot

ARCHES = ["SPARC", "MIPS", "VAX"]


@dataclass
class Machine:
    """A submitting machine of the paper: its priority and, job by job, what it wants."""

    name: str
    priority: int
    jobs: list[tuple[int, ClassAd, str]]


def find_server(job: ClassAd, preferences: str, servers: list[Slot], busy: set[str]) -> str | None:
    for name, server in servers:
        prefers = parse_expr(preferences)
        wanted = ClassAd({"Wanted": prefers}, parent=job).value("Wanted", False, target=server, now=NOW)
        if name not in busy and symmetric_match(job, server, NOW) and wanted:
            return name
    for name, server in servers:
        if name not in busy and symmetric_match(job, server, NOW):
            return name
    return None


def reschedule(machines: list[Machine], servers: list[Slot]) -> list[tuple[str, int, str]]:
    busy: set[str] = set()
    found: list[tuple[str, int, str]] = []
    order = sorted(machines, key=lambda machine: (-machine.priority, machine.name))
    for place, machine in enumerate(order):
        following = order[place + 1].priority if place + 1 < len(order) else None
        jobs = list(machine.jobs)
        while jobs and (following is None or machine.priority >= following):
            number, job, preferences = jobs.pop(0)
            server = find_server(job, preferences, servers, busy)
            if server is not None:
                found.append((machine.name, number, server))
                busy.add(server)
                machine.priority -= 1
    return found


class PaperTurns:
    """The paper's order as turns: each machine once, for as many servers as its priority is above the next's."""

    def __init__(self, machines: list[Machine]) -> None:
        order = sorted(machines, key=lambda machine: (-machine.priority, machine.name))
        self._waiting: list[tuple[str, float]] = []
        for place, machine in enumerate(order):
            last = place + 1 == len(order)
            self._waiting.append(
                (machine.name, float("inf") if last else machine.priority - order[place + 1].priority + 1.0)
            )

    def next(self) -> tuple[str, float] | None:
        return self._waiting.pop(0) if self._waiting else None

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        pass

    def retire(self, submitter: str) -> None:
        pass

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        return not preempting


@pytest.mark.parametrize("seed", range(30))
def test_the_cycle_does_what_the_paper_says(seed: int) -> None:
    chance = random.Random(seed)
    servers = [
        slot(
            f"s{number}",
            memory=chance.choice([8, 16, 32]),
            Arch=chance.choice(ARCHES),
            Requirements=[chance.choice(["true", "TARGET.RequestMemory < 20", 'TARGET.Owner != "m2"'])],
        )
        for number in range(chance.randrange(1, 15))
    ]
    machines: list[Machine] = []
    requests: dict[str, list[ResourceRequest]] = {}
    for number in range(4):
        name, jobs, own = f"m{number}", list[tuple[int, ClassAd, str]](), list[ResourceRequest]()
        for job in range(chance.randrange(1, 8)):
            preferences = chance.choice(["TARGET.Memory > 10", f'TARGET.Arch == "{chance.choice(ARCHES)}"', "false"])
            asked = request(
                job,
                1,
                Owner=name,
                RequestMemory=chance.choice([4, 12, 30]),
                Requirements=[f'TARGET.Memory >= RequestMemory && TARGET.Arch != "{chance.choice(ARCHES)}"'],
                Rank=[preferences],
            )
            jobs.append((job, asked.ad, preferences))
            own.append(asked)
        machines.append(Machine(name, chance.randrange(-5, 6), jobs))
        requests[name] = own
    outcome = negotiate(requests, picture_of(servers), turns=PaperTurns(machines))
    found = [(match.submitter, match.request, match.slot) for match in outcome.matches]
    assert found == reschedule(machines, servers)
