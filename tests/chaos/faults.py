"""The generator: a plan of one round, drawn from a seed. Plain data; whoever has a pool carries it out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

HEAD = "head"
SCHEDDS = ("s1", "s2")
STARTDS = ("m1", "m2", "m3")
NODES = (HEAD, *SCHEDDS, *STARTDS)
#: The roles of a node, by the first letter of its name.
ROLES = {"h": ("collector", "negotiator"), "s": ("schedd",), "m": ("startd",)}


class Kind(StrEnum):
    """The faults and requests of a round."""

    KILL = "kill -9 of a node"
    REBOOT = "a machine fails with all that runs on it"
    FREEZE = "a node stands still (SIGSTOP)"
    CUT = "connections break between two nodes"
    SILENCE = "nothing arrives between two nodes"
    ONE_WAY = "nothing arrives from one node at another"
    DELAY = "everything takes its time on the network"
    LOSS = "connections break now and then"
    ROLE = "a role fails and is started again"
    KEEPER_HANGS = "a keeper stands still"
    KEEPER_DIES = "kill -9 of a keeper"
    VACATE = "a user vacates jobs"
    HOLD = "a user holds jobs and releases them"
    FULL_DISK = "a full disk: no queue, no scratch directory, no input"
    CALM = "nothing"


#: Faults between two nodes.
BETWEEN = (Kind.CUT, Kind.SILENCE, Kind.ONE_WAY)
OF_MACHINES = (Kind.REBOOT, Kind.KEEPER_HANGS, Kind.KEEPER_DIES)
OF_SCHEDDS = (Kind.VACATE, Kind.HOLD)
#: Faults of a node that keeps a queue or runs jobs.
OF_WORKERS = (Kind.FULL_DISK,)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it begins at a time and lasts for a while, in seconds."""

    kind: Kind
    at: float
    seconds: float
    node: str
    other: str = ""
    number: int = 0

    def __str__(self) -> str:
        where = f"{self.node} {self.other}".strip()
        return f"{self.at:7.1f} s  {self.seconds:6.1f} s  {where:8}  {self.kind}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One round: the jobs of each schedd, in seconds that each takes, and what goes wrong meanwhile."""

    seed: int
    lease: float
    slots: int
    jobs: dict[str, tuple[float, ...]]
    faults: tuple[Fault, ...]

    @property
    def troubles(self) -> int:
        """How many of its faults are one."""
        return sum(fault.kind is not Kind.CALM for fault in self.faults)


def plan(seed: int) -> Plan:
    """The plan that a seed stands for."""
    chance = random.Random(f"plan {seed}")
    lease = chance.choice((10.0, 20.0, 60.0))
    jobs = {name: tuple(round(chance.uniform(0.0, 90.0), 3) for _ in range(chance.randrange(1, 7))) for name in SCHEDDS}
    # Every second round has a few faults, the others so many that hardly a message is without trouble.
    count = chance.randrange(1, 13) if chance.random() < 0.5 else chance.randrange(13, 61)
    faults = sorted((_fault(chance, lease) for _ in range(count)), key=lambda fault: fault.at)
    return Plan(seed, lease, chance.choice((1, 2)), jobs, tuple(faults))


def _fault(chance: random.Random, lease: float) -> Fault:
    kind = chance.choice(list(Kind))
    node, other = chance.choice(NODES), ""
    if kind in BETWEEN:
        node, other = chance.sample(NODES, 2)
    elif kind in OF_MACHINES:
        node = chance.choice(STARTDS)
    elif kind in OF_SCHEDDS:
        node = chance.choice(SCHEDDS)
    elif kind in OF_WORKERS:
        node = chance.choice((*SCHEDDS, *STARTDS))
    # For less than a lease, for about one, for more than a silent connection lasts.
    seconds = chance.choice((chance.uniform(0.1, lease), chance.uniform(0.8, 1.6) * lease, chance.uniform(1.0, 150.0)))
    return Fault(kind, round(chance.uniform(0.0, 150.0), 3), round(seconds, 3), node, other, chance.randrange(1 << 16))
