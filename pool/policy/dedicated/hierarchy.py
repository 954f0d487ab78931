"""A hierarchy of dedicated schedulers for one machine (WR 6.4, W55).

A machine names its dedicated schedulers in order. The first has the last word. A scheduler that gives a machine back
says until when it will not need it (`LendClaims.until`, `ReleaseClaims.until`): a *loan*. A scheduler lower in the list
may then claim the machine, and gives it back when it is called back or when the loan is over, whichever is first.

| the loan says | what a lower scheduler may run there | when the upper one wants it back |
|---|---|---|
| until a time T | gangs that can be saved, or are expected to end by T | the first leave at once; others stay until T |
| nothing: until called back | gangs that can be saved | they leave at once |

A pool that lends to other pools lists its own scheduler first and theirs after it, so that a gang that is larger than
each of the pools can run on machines of several.

The machine keeps the loans, so no scheduler has to believe another. It knows the schedulers by their nodes'
certificates, and says in its ad who lends it until when. It lets no lender break its promise, and ends the borrower's
claim when the loan is over. The borrower saves its gangs in time (`must_leave`), so that the machine is free then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.policy.dedicated.model import DedicatedJob, DedicatedRun, Kind, MachineState, PartClass, Share
from pool.policy.managed import HOLDER, loans_of, managers_of

#: A loan shorter than so many times what it takes to give the machine back is not worth beginning with.
WORTH = 3.0


@dataclass(frozen=True, slots=True)
class MachineStanding:
    """The facts about a machine, from its ad.

    Attributes:
        schedulers: the names of its dedicated schedulers, the upper ones first.
        holder: the scheduler that has a claim on it; "" for none.
        saveable: whether what runs under that claim can be saved; true when nothing runs.
        opportunistic: an opportunistic job runs there.
        loans: of schedulers that gave it back, until when they do not need it; inf for "until called back".
        ends: when the owner of the machine takes it out of use; inf when that is not planned.
    """

    schedulers: tuple[str, ...]
    holder: str = ""
    saveable: bool = True
    opportunistic: bool = False
    loans: Mapping[str, float] = field(default_factory=dict)
    ends: float = math.inf


def read_standing(ad: Mapping[str, Any]) -> MachineStanding:
    """The facts about a machine, from its ad in wire form."""
    holder = ad.get(HOLDER)
    running = ad.get("JobId") is not None
    return MachineStanding(
        schedulers=managers_of(ad),
        holder=holder if isinstance(holder, str) else "",
        saveable=not running or ad.get("JobCanCheckpoint") is True,
        opportunistic=running and not holder,
        loans=loans_of(ad),
    )


def lender_of(machine: MachineStanding, scheduler: str) -> str:
    """The scheduler that lends the machine to this one until the first of all times; "" for none."""
    upper = [name for name in machine.schedulers[: machine.schedulers.index(scheduler)] if name in machine.loans]
    return min(upper, key=lambda name: machine.loans[name], default="")


def is_worth(until: float, now: float, lead: float) -> bool:
    """Whether a machine that is lent until a time is still worth beginning with.

    Args:
        lead: seconds that it takes to give it back.
    """
    return until <= now or until - now >= WORTH * lead


def must_leave(run: DedicatedRun, now: float, lead: float) -> bool:
    """Whether a gang on lent machines has to be saved now, so that they are free when the loan is over.

    Args:
        lead: seconds that it takes to give a machine back, as was measured.
    """
    if run.leaving or not run.job.saveable or run.until == math.inf:
        return False
    return now < run.until <= now + max(lead, run.job.save_seconds)


def lent_away(machines: Iterable[tuple[str, Kind, str, float]], now: float) -> tuple[DedicatedRun, ...]:
    """Machines that lower schedulers use for gangs that cannot be saved, as runs until the loans are over.

    So a cycle counts them as busy until then, and a plan shows them.

    Args:
        machines: of each its name, its kind, the borrower, and until when it is lent.
    """
    together: dict[tuple[str, float], dict[Kind, list[str]]] = {}
    for name, kind, borrower, until in machines:
        together.setdefault((borrower, until), {}).setdefault(kind, []).append(name)
    found = []
    for (borrower, until), kinds in together.items():
        shares = tuple(Share(0, kind, tuple(names)) for kind, names in kinds.items())
        count = sum(len(share.machines) for share in shares)
        node = borrower.partition("@")[2]
        job = DedicatedJob(
            f"loan to {node}", node, (PartClass(count, tuple(kinds)),), now, duration=max(1.0, until - now)
        )
        found.append(DedicatedRun(job, now, shares, lent=True))
    return tuple(found)


def promised_until(machine: MachineStanding, scheduler: str, now: float) -> float:
    """Until when no upper scheduler takes the machine from this one; inf for the first in the list, `now` or less where
    it may be called back at any time."""
    place = machine.schedulers.index(scheduler)
    until = machine.ends
    for upper in machine.schedulers[:place]:
        loan = machine.loans.get(upper, math.inf)
        until = min(until, now if loan == math.inf else loan)
    return until


def standing_for(machine: MachineStanding, scheduler: str, now: float) -> tuple[MachineState, float] | None:
    """How a scheduler sees a machine: `state` and `until` of a `DedicatedMachine`; None if it is not one of its own."""
    if scheduler not in machine.schedulers:
        return None
    until = promised_until(machine, scheduler, now)
    if machine.holder == scheduler:
        return MachineState.CLAIMED_IDLE, until
    if machine.holder in machine.schedulers:
        if machine.schedulers.index(machine.holder) < machine.schedulers.index(scheduler):
            return MachineState.AWAY, until
        promise = machine.loans.get(scheduler, math.inf)
        if not machine.saveable and now < promise < math.inf:
            return MachineState.AWAY, until
        return MachineState.OCCUPIED, until
    if machine.holder or machine.opportunistic:
        return MachineState.OCCUPIED, until
    return MachineState.UNCLAIMED, until


def claim_refusal(
    machine: MachineStanding, scheduler: str, saveable: bool, expected_end: float | None, now: float
) -> str | None:
    """Why a scheduler may not claim a machine for a gang now, as a clause for its log; None if it may.

    Args:
        saveable: whether the gang can be saved.
        expected_end: when it is expected to end; None when that is not known.
    """
    if scheduler not in machine.schedulers:
        return (
            f"{scheduler} is not among the machine's dedicated schedulers ({', '.join(machine.schedulers) or 'none'})"
        )
    seen = standing_for(machine, scheduler, now)
    assert seen is not None
    state, until = seen
    if state is MachineState.AWAY:
        return f"{machine.holder} uses the machine"
    if saveable or until == math.inf:
        return None
    if until <= now:
        return "an upper scheduler may call the machine back at any time, and the gang cannot be saved"
    if expected_end is None:
        return "the machine is lent until a time, and the gang cannot be saved and nobody said how long it runs"
    if expected_end > until:
        return f"the loan is over {expected_end - until:.0f} seconds before the gang's expected end"
    return None
