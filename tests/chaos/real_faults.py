"""The generator for a pool of real processes: a plan of one round, drawn from a seed. Plain data, as in `faults`.

Times are a real clock's, so leases and faults are short. Faults that only processes, packets and disks can have are
here; the machines are those of the virtual side.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.faults import NODES, SCHEDDS, STARTDS

#: CLAIM_LEASE of all schedds, and for how long faults begin, seconds.
LEASE, SPAN = 4.0, 12.0
#: How many faults begin in a second, at least and at most.
RATE = (1.0, 5.0)


class RealKind(StrEnum):
    """The faults and requests of a round."""

    KILL = "kill -9 of a node"
    FREEZE = "SIGSTOP of a node"
    REBOOT = "all of a machine ends, and it starts again"
    ROLE = "a role fails and is started again"
    KEEPER_DIES = "kill -9 of a keeper"
    KEEPER_HANGS = "SIGSTOP of a keeper"
    FORK_SERVER_DIES = "kill -9 of a fork server"
    FORK_SERVER_HANGS = "SIGSTOP of a fork server"
    JOB_DIES = "kill -9 of a job"
    JOB_HANGS = "SIGSTOP of a job"
    CUT = "connections break between two machines"
    SILENCE = "no packet passes between two machines"
    ALONE = "no packet passes to or from a machine"
    ONE_WAY = "no packet passes from one machine to another"
    DELAY = "packets take their time"
    JITTER = "packets overtake each other"
    LOSS = "packets are lost"
    FULL_DISK = "the disk of a machine is full"
    FULL_HOME = "the disk of a user's files is full"
    VACATE = "a user vacates jobs"
    HOLD = "a user holds jobs and releases them"


BETWEEN_TWO = (RealKind.CUT, RealKind.SILENCE, RealKind.ONE_WAY)
OF_JOBS = (
    RealKind.KEEPER_DIES,
    RealKind.KEEPER_HANGS,
    RealKind.FORK_SERVER_DIES,
    RealKind.FORK_SERVER_HANGS,
    RealKind.JOB_DIES,
    RealKind.JOB_HANGS,
)
#: All that only needs packets to be dropped or held back, by rules.
OF_PACKETS = (
    RealKind.SILENCE,
    RealKind.ALONE,
    RealKind.ONE_WAY,
    RealKind.DELAY,
    RealKind.JITTER,
    RealKind.LOSS,
)
OF_USERS = (RealKind.VACATE, RealKind.HOLD, RealKind.FULL_HOME)


@dataclass(frozen=True, slots=True)
class RealFault:
    """One fault: it begins at a time and lasts for a while, in seconds. `number` chooses where there are several."""

    kind: RealKind
    at: float
    seconds: float
    node: str
    other: str = ""
    number: int = 0

    def __str__(self) -> str:
        where = f"{self.node} {self.other}".strip()
        return f"{self.at:6.2f} s  {self.seconds:5.2f} s  {where:8}  {self.kind}"


@dataclass(frozen=True, slots=True)
class RealJob:
    """One job: when it is submitted, how many ticks of a tenth of a second it takes, and whether it may be saved."""

    at: float
    ticks: int
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class RealPlan:
    """One round: the jobs of each schedd, and what goes wrong meanwhile."""

    seed: int
    jobs: dict[str, tuple[RealJob, ...]]
    faults: tuple[RealFault, ...]


def real_plan(seed: int, span: float = SPAN) -> RealPlan:
    """The plan that a seed stands for, whose faults begin within so many seconds."""
    chance = random.Random(f"real plan {seed}")
    jobs = {name: tuple(_job(chance, span) for _ in range(chance.randrange(3, 10))) for name in SCHEDDS}
    number = max(round(chance.uniform(*RATE) * span), 1)
    faults = sorted((_fault(chance, span) for _ in range(number)), key=lambda fault: fault.at)
    return RealPlan(seed, jobs, tuple(faults))


def _job(chance: random.Random, span: float) -> RealJob:
    # Half of them are there before the first fault; the others come in the middle of it.
    at = chance.choice((0.0, round(chance.uniform(0.0, span), 3)))
    longest = round(10 * span)
    ticks = chance.choice((0, chance.randrange(1, 30), chance.randrange(longest), chance.randrange(longest)))
    return RealJob(at, ticks, chance.random() < 0.5)


def _fault(chance: random.Random, span: float) -> RealFault:
    kind = chance.choice(list(RealKind))
    node, other = chance.choice(NODES), ""
    if kind in BETWEEN_TWO:
        node, other = chance.sample(NODES, 2)
    elif kind in OF_JOBS:
        node = chance.choice(STARTDS)
    elif kind in OF_USERS:
        node = chance.choice(SCHEDDS)
    # For a moment, for less than a lease, for about one.
    seconds = chance.choice(
        (chance.uniform(0.05, 0.5), chance.uniform(0.5, 0.9) * LEASE, chance.uniform(0.8, 2.0) * LEASE)
    )
    at, number = round(chance.uniform(0.3, span), 3), chance.randrange(1 << 16)
    return RealFault(kind, at, round(min(seconds, span), 3), node, other, number)
