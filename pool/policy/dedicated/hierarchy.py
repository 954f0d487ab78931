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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pool.policy.dedicated.model import MachineState


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
