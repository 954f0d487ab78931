"""The machines of one cycle, as classes: which a job could have, and how soon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from pool.policy.dedicated.flow import Choices, ClassMatching, Demand, fits_together
from pool.policy.dedicated.model import (
    DedicatedJob,
    DedicatedRun,
    Kind,
    MachineClass,
    MachineState,
    PartClass,
    Share,
)


class Tier(IntEnum):
    """How soon a machine could be had: the lower, the sooner. A job takes the lowest tiers that hold all of it."""

    IDLE = 0
    UNCLAIMED = 1
    LEAVING = 2
    OCCUPIED = 3


TIERS = {
    MachineState.CLAIMED_IDLE: Tier.IDLE,
    MachineState.UNCLAIMED: Tier.UNCLAIMED,
    MachineState.OCCUPIED: Tier.OCCUPIED,
}


class MachineNode(NamedTuple):
    """A class of alike machines that can be had: a vertex of the matching.

    Attributes:
        tier: how soon. kind: which. until: see `DedicatedMachine.until`.
    """

    tier: Tier
    kind: Kind
    until: float


class Supply:
    """The supply: machines that can be had, by node, and the numbers of all that are configured.

    Attributes:
        names: the machines of each node.
        unused: the claimed idle ones that nothing has run on for `unused_claim_timeout`.
        usable: machines by kind that are not away, those of running gangs included.
        away: by kind.
        matching: the accepted demands of this cycle on these nodes.
    """

    def __init__(
        self, machines: Iterable[MachineClass], running: Sequence[DedicatedRun], reserved: frozenset[str]
    ) -> None:
        self.names: dict[MachineNode, list[str]] = {}
        self.unused: set[str] = set()
        self.usable: dict[Kind, int] = {}
        self.away: dict[Kind, int] = {}
        #: The usable machines again, with the time until which they are this scheduler's.
        self._lasts: list[tuple[Kind, int, float]] = []
        #: The machines of reservations that have begun, by name: kind and state.
        self.reserved: dict[str, tuple[Kind, MachineState]] = {}
        for machine in machines:
            counts = self.away if machine.state is MachineState.AWAY else self.usable
            counts[machine.kind] = counts.get(machine.kind, 0) + machine.count
            if machine.state is not MachineState.AWAY:
                self._lasts.append((machine.kind, machine.count, machine.until))
            free: Iterable[str] = machine.names
            if reserved and not reserved.isdisjoint(machine.names):
                self.reserved.update(
                    (name, (machine.kind, machine.state)) for name in machine.names if name in reserved
                )
                free = [name for name in machine.names if name not in reserved]
            if machine.state is not MachineState.AWAY:
                self.names.setdefault(MachineNode(TIERS[machine.state], machine.kind, machine.until), []).extend(free)
                if machine.unused:
                    self.unused.update(free)
        for gang in running:
            for share in gang.shares:
                self.usable[share.kind] = self.usable.get(share.kind, 0) + len(share.machines)
                self._lasts.append((share.kind, len(share.machines), gang.until))
                if gang.leaving:
                    free = [name for name in share.machines if name not in reserved]
                    self.names.setdefault(MachineNode(Tier.LEAVING, share.kind, gang.until), []).extend(free)
        self.matching = ClassMatching({node: len(names) for node, names in self.names.items()})
        self._limited = any(until != math.inf for _, _, until in self._lasts)
        self._choices: dict[tuple[tuple[Kind, ...], Tier, float], Choices[MachineNode]] = {}
        self._possible: dict[tuple[tuple[PartClass, ...], float], bool] = {}

    def make_leaving(self, gang: DedicatedRun) -> None:
        """A running gang is to be saved: its machines can be had by a job that waits."""
        for share in gang.shares:
            node = MachineNode(Tier.LEAVING, share.kind, gang.until)
            self.names.setdefault(node, []).extend(share.machines)
            self.matching.add(node, len(share.machines))
        self._choices.clear()

    def demands(self, job: DedicatedJob, tier: Tier, now: float) -> list[Demand[MachineNode]]:
        """The demand of a job in the matching, if it may use machines up to a tier."""
        ends = self._needed_until(job, now)
        return [(self._nodes(part.fits, tier, ends), part.count) for part in job.parts]

    def _needed_until(self, job: DedicatedJob, now: float) -> float:
        """Until when a machine has to be this scheduler's, for a job to begin there now; -inf where that is equal."""
        if not self._limited or job.saveable:
            return -math.inf
        return math.inf if job.remaining is None else now + job.remaining

    def _nodes(self, fits: tuple[Kind, ...], tier: Tier, ends: float) -> Choices[MachineNode]:
        key = (fits, tier, ends)
        found = self._choices.get(key)
        if found is None:
            preferred = {kind: place for place, kind in enumerate(fits)}
            nodes = [node for node in self.names if node.tier <= tier and node.kind in preferred and node.until >= ends]
            nodes.sort(key=lambda node: (node.tier, -node.until, preferred[node.kind]))
            found = self._choices[key] = tuple(nodes)
        return found

    def could_ever(self, job: DedicatedJob, now: float) -> bool:
        """Whether all configured machines that are not away, busy ones included, can hold the job (3.3 c or d).

        Machines that are lent for less time than it needs do not count."""
        key = (job.parts, self._needed_until(job, now))
        found = self._possible.get(key)
        if found is None:
            found = self._possible[key] = self._holds(job, key[1])
        return found

    def could_if_lent_for_longer(self, job: DedicatedJob) -> bool:
        """The same, with machines that are lent for less time than the job needs."""
        return self._holds(job, -math.inf)

    def _holds(self, job: DedicatedJob, until: float) -> bool:
        usable = self.usable
        if until != -math.inf:
            usable = {}
            for kind, count, lasts in self._lasts:
                if lasts >= until:
                    usable[kind] = usable.get(kind, 0) + count
        return fits_together(usable, [(part.fits, part.count) for part in job.parts])

    def could_if_all_were_there(self, job: DedicatedJob) -> bool:
        """The same, with the machines that are away."""
        everything = {kind: self.usable.get(kind, 0) + self.away.get(kind, 0) for kind in (*self.usable, *self.away)}
        return fits_together(everything, [(part.fits, part.count) for part in job.parts])


class Dealer:
    """Gives machines by name to the demands that the matching accepted, in the order of the jobs."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._taken: dict[MachineNode, int] = {}
        self._flows: dict[Choices[MachineNode], list[tuple[MachineNode, int]]] = {}

    def deal(self, demands: Sequence[Demand[MachineNode]]) -> list[tuple[int, MachineNode, tuple[str, ...]]]:
        """The machines of one accepted job: (part, node, names)."""
        dealt = []
        for part, (choices, count) in enumerate(demands):
            if choices not in self._flows:
                flow = self._supply.matching.flow(choices)
                self._flows[choices] = [(node, amount) for node, amount in flow.items()][::-1]
            flows = self._flows[choices]
            while count:
                node, amount = flows.pop()
                given = min(count, amount)
                if amount > given:
                    flows.append((node, amount - given))
                start = self._taken.get(node, 0)
                self._taken[node] = start + given
                dealt.append((part, node, tuple(self._supply.names[node][start : start + given])))
                count -= given
        return dealt

    def rest(self, tier: Tier) -> list[tuple[MachineNode, list[str]]]:
        """The machines of a tier that no job got."""
        left = []
        for node, names in self._supply.names.items():
            if node.tier is tier and self._taken.get(node, 0) < len(names):
                left.append((node, names[self._taken.get(node, 0) :]))
        return left


def shares_of(dealt: Iterable[tuple[int, MachineNode, tuple[str, ...]]]) -> tuple[Share, ...]:
    """Dealt machines as the shares of a decision: one for each part and kind."""
    merged: dict[tuple[int, Kind], list[str]] = {}
    for part, node, names in dealt:
        merged.setdefault((part, node.kind), []).extend(names)
    return tuple(Share(part, kind, tuple(names)) for (part, kind), names in merged.items())
