"""The states of a slot, as a table (EV 2.7 figure 2.7, RL 3.2.2, and what HTCondor's users know).

    Owner        its owner uses the machine (START is not true)
    Unclaimed    offered to the pool
    Matched      the negotiator has granted it to somebody
    Claimed      in a schedd's hands: idle, busy, suspended, or retiring (its last job may end)
    Preempting   the job has to leave: vacating (asked to), killing

The papers' states are these: NoJob is Unclaimed, JobRunning is Claimed busy, Suspended is Claimed suspended,
Vacating and Killed are Preempting. An event that the table does not list for a state is refused: it is a defect,
not a surprise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pool.errors import PoolError


class SlotState(StrEnum):
    """What a slot is, as advertised."""

    OWNER = "Owner"
    UNCLAIMED = "Unclaimed"
    MATCHED = "Matched"
    CLAIMED = "Claimed"
    PREEMPTING = "Preempting"


class Activity(StrEnum):
    """What goes on in it."""

    IDLE = "Idle"
    BUSY = "Busy"
    SUSPENDED = "Suspended"
    RETIRING = "Retiring"
    VACATING = "Vacating"
    KILLING = "Killing"


class SlotEvent(StrEnum):
    """What moves a slot."""

    OWNER_LEAVES = "owner leaves"
    OWNER_RETURNS = "owner returns"
    MATCH = "match"
    LAPSE = "lapse"
    CLAIM = "claim"
    ACTIVATE = "activate"
    JOB_ENDS = "job ends"
    SUSPEND = "suspend"
    CONTINUE = "continue"
    RETIRE = "retire"
    VACATE = "vacate"
    KILL = "kill"
    RELEASE = "release"


class Condition(NamedTuple):
    """A slot's state and activity."""

    state: SlotState
    activity: Activity


class SlotStateError(PoolError):
    """A slot was told something that cannot happen to it."""


_O = Condition(SlotState.OWNER, Activity.IDLE)
_U = Condition(SlotState.UNCLAIMED, Activity.IDLE)
_M = Condition(SlotState.MATCHED, Activity.IDLE)
_CI = Condition(SlotState.CLAIMED, Activity.IDLE)
_CB = Condition(SlotState.CLAIMED, Activity.BUSY)
_CS = Condition(SlotState.CLAIMED, Activity.SUSPENDED)
_CR = Condition(SlotState.CLAIMED, Activity.RETIRING)
_PV = Condition(SlotState.PREEMPTING, Activity.VACATING)
_PK = Condition(SlotState.PREEMPTING, Activity.KILLING)

_E = SlotEvent
TABLE: dict[tuple[Condition, SlotEvent], Condition] = {
    (_O, _E.OWNER_LEAVES): _U,
    (_U, _E.OWNER_RETURNS): _O,
    (_U, _E.MATCH): _M,
    (_M, _E.LAPSE): _U,
    (_M, _E.OWNER_RETURNS): _O,
    (_U, _E.CLAIM): _CI,
    (_M, _E.CLAIM): _CI,
    (_CI, _E.ACTIVATE): _CB,
    (_CI, _E.RELEASE): _U,
    (_CB, _E.JOB_ENDS): _CI,
    (_CB, _E.SUSPEND): _CS,
    (_CS, _E.CONTINUE): _CB,
    (_CS, _E.JOB_ENDS): _CI,
    (_CB, _E.RETIRE): _CR,
    (_CR, _E.JOB_ENDS): _CI,
    (_CB, _E.VACATE): _PV,
    (_CS, _E.VACATE): _PV,
    (_CR, _E.VACATE): _PV,
    (_CB, _E.KILL): _PK,
    (_CS, _E.KILL): _PK,
    (_CR, _E.KILL): _PK,
    (_PV, _E.KILL): _PK,
    (_PV, _E.JOB_ENDS): _CI,
    (_PK, _E.JOB_ENDS): _CI,
}


def next_condition(now: Condition, event: SlotEvent) -> Condition:
    """Where an event leads.

    Raises:
        SlotStateError: the table does not list it.
    """
    found = TABLE.get((now, event))
    if found is None:
        possible = ", ".join(sorted(listed.value for (state, listed) in TABLE if state == now))
        raise SlotStateError(f"a slot that is {now.state} {now.activity} cannot {event}", hint=f"possible: {possible}")
    return found


def draw() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    for (before, event), after in TABLE.items():
        lines.append(f"    {before.state}_{before.activity} --> {after.state}_{after.activity}: {event}")
    return "\n".join(lines)
