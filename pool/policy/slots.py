"""The states of a slot, and everything that can happen to it.

Rules:

1.  A slot is in one *condition*: a state and an activity, both advertised. The papers' states are among them:
    NoJob is Unclaimed, JobRunning is Claimed Busy, Suspended is Claimed Suspended, Vacating and Killed are
    Preempting (EV 2.7, figure 2.7; EV 3.2). Owner, Matched and Claimed Idle come from RL 3.2.2: a match is a
    hint, and a claim serves job after job.
2.  Without a claim a slot is Owner or Unclaimed, as START has it. A match moves an unclaimed slot to Matched and
    lapses by itself; an owner who returns ends a match without asking anybody.
3.  A job is only ever in Claimed (but Idle) and Preempting. It comes by ACTIVATE, or by FIND where it outlived the node
    that started it, and is gone at JOB_ENDS, however it ended. Preempting never turns back: a job that has to leave
    leaves, whatever the owner does.
4.  What follows Preempting is Owner: whoever took the machine back has it until START says otherwise, which
    OWNER_LEAVES then does at once.
5.  RETIRE lets the job that runs end in its own time and lets no other follow; STAY takes it back where it was for
    the sake of another job, which has gone elsewhere. DRAIN takes a slot without a claim
    or without a job out of use; where there is a job it ends or leaves first.
6.  KILL may follow VACATE and never the reverse. Both work on a suspended job: the keeper lets it go on so that it
    can catch the signal.
7.  YIELD stops a job for the sake of an urgent one, that has a slot on top of this one until HAND_BACK (D7). If the
    job below ends meanwhile its claim is over, and the slot is Owner for as long as the urgent job is there.
8.  A condition and event that the table does not list is refused: it is a defect, not a surprise.

::

            OWNER_LEAVES              MATCH              CLAIM           ACTIVATE             SUSPEND
      Owner ------------> Unclaimed ----------> Matched --------> Claimed ---------> Claimed ---------> Claimed
       ^ ^ <-OWNER_RETURNS-- | ^ <----LAPSE-----'                  Idle <-JOB_ENDS--- Busy <--CONTINUE- Suspended
       | |                   | '----------------RELEASE------------' ^                |   |                 |
       | |                   '------------------CLAIM----------------'         RETIRE |   | VACATE, KILL    |
       | |                                                                            v   v                 |
       | '------------------------- JOB_ENDS ------------------------------- Claimed   Preempting <---------'
       |                                                                     Retiring -> Vacating --KILL-> Killing
       '--------------------------- JOB_ENDS ---------------------------------------------' <-----JOB_ENDS----'

A gap in the table is an event that may never happen in that state: nothing is activated on a slot that is not Claimed
Idle, and a drained slot is not claimed.

The table decides what is possible; `pool.policy.owner` decides what is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from pool.errors import PoolError


class SlotState(StrEnum):
    """The state of a slot, as advertised."""

    OWNER = "Owner"
    UNCLAIMED = "Unclaimed"
    MATCHED = "Matched"
    CLAIMED = "Claimed"
    PREEMPTING = "Preempting"
    DRAINED = "Drained"


class Activity(StrEnum):
    """The activity of a slot in its state."""

    IDLE = "Idle"
    BUSY = "Busy"
    SUSPENDED = "Suspended"
    RETIRING = "Retiring"
    YIELDING = "Yielding"
    VACATING = "Vacating"
    KILLING = "Killing"


class SlotEvent(StrEnum):
    """The events that move a slot."""

    OWNER_LEAVES = "owner leaves"  # START is true again, or depends on the job
    OWNER_RETURNS = "owner returns"  # START is false
    MATCH = "match"  # the negotiator has granted it to somebody
    LAPSE = "lapse"  # nobody claimed it in time
    CLAIM = "claim"  # a schedd with a grant
    ACTIVATE = "activate"  # the schedd starts a job
    FIND = "find"  # a job that outlived an earlier run of the node
    JOB_ENDS = "job ends"  # by itself, or because it was stopped
    SUSPEND = "suspend"
    CONTINUE = "continue"
    RETIRE = "retire"  # no job after this one
    STAY = "stay"  # whoever it was to make room for does not want the slot any more
    YIELD = "yield"  # an urgent job takes the slot for a while
    HAND_BACK = "hand back"
    VACATE = "vacate"
    KILL = "kill"
    RELEASE = "release"  # the schedd gives the claim back, or its lease is over
    DRAIN = "drain"  # the administrator takes it out of use
    UNDRAIN = "undrain"


class SlotAction(StrEnum):
    """The work that a move asks of the slot's keeper."""

    NOTHING = "nothing"
    OFFER = "offer it with a fresh key"
    WITHDRAW = "take its grants back"
    START_JOB = "start the job"
    SUSPEND_JOB = "stop the job's processes where they are"
    RESUME_JOB = "let the job's processes go on"
    ASK_JOB = "signal the job softly"
    KILL_JOB = "kill the job's processes"
    END_CLAIM = "end the claim"


class SlotCondition(NamedTuple):
    """A slot's state and activity."""

    state: SlotState
    activity: Activity

    def __str__(self) -> str:
        return f"{self.state} {self.activity}"


class SlotTransition(NamedTuple):
    """Where an event leads, and what has to be done."""

    after: SlotCondition
    action: SlotAction


class SlotStateError(PoolError):
    """An event that cannot happen to a slot in its state."""


OWNER = SlotCondition(SlotState.OWNER, Activity.IDLE)
UNCLAIMED = SlotCondition(SlotState.UNCLAIMED, Activity.IDLE)
MATCHED = SlotCondition(SlotState.MATCHED, Activity.IDLE)
CLAIMED_IDLE = SlotCondition(SlotState.CLAIMED, Activity.IDLE)
BUSY = SlotCondition(SlotState.CLAIMED, Activity.BUSY)
SUSPENDED = SlotCondition(SlotState.CLAIMED, Activity.SUSPENDED)
RETIRING = SlotCondition(SlotState.CLAIMED, Activity.RETIRING)
YIELDING = SlotCondition(SlotState.CLAIMED, Activity.YIELDING)
VACATING = SlotCondition(SlotState.PREEMPTING, Activity.VACATING)
KILLING = SlotCondition(SlotState.PREEMPTING, Activity.KILLING)
DRAINED = SlotCondition(SlotState.DRAINED, Activity.IDLE)
#: Where a job is.
OCCUPIED = frozenset({BUSY, SUSPENDED, RETIRING, YIELDING, VACATING, KILLING})
#: Where it stands still.
STILL = frozenset({SUSPENDED, YIELDING})
#: Where a claim may be preempted for a better one (D5).
PREEMPTIBLE = frozenset({CLAIMED_IDLE, BUSY})

CONDITIONS = (
    OWNER,
    UNCLAIMED,
    MATCHED,
    CLAIMED_IDLE,
    BUSY,
    SUSPENDED,
    RETIRING,
    YIELDING,
    VACATING,
    KILLING,
    DRAINED,
)

_E, _A = SlotEvent, SlotAction
_ROWS: tuple[tuple[SlotCondition, SlotEvent, SlotCondition, SlotAction], ...] = (
    # no claim
    (OWNER, _E.OWNER_LEAVES, UNCLAIMED, _A.OFFER),
    (OWNER, _E.FIND, BUSY, _A.RESUME_JOB),
    (OWNER, _E.DRAIN, DRAINED, _A.NOTHING),
    (UNCLAIMED, _E.OWNER_RETURNS, OWNER, _A.WITHDRAW),
    (UNCLAIMED, _E.MATCH, MATCHED, _A.NOTHING),
    (UNCLAIMED, _E.CLAIM, CLAIMED_IDLE, _A.NOTHING),
    (UNCLAIMED, _E.DRAIN, DRAINED, _A.WITHDRAW),
    (MATCHED, _E.OWNER_RETURNS, OWNER, _A.WITHDRAW),
    (MATCHED, _E.LAPSE, UNCLAIMED, _A.OFFER),
    (MATCHED, _E.CLAIM, CLAIMED_IDLE, _A.NOTHING),
    (MATCHED, _E.DRAIN, DRAINED, _A.WITHDRAW),
    (DRAINED, _E.UNDRAIN, OWNER, _A.NOTHING),
    # a claim without a job
    (CLAIMED_IDLE, _E.ACTIVATE, BUSY, _A.START_JOB),
    (CLAIMED_IDLE, _E.RELEASE, UNCLAIMED, _A.OFFER),
    (CLAIMED_IDLE, _E.OWNER_RETURNS, OWNER, _A.END_CLAIM),
    (CLAIMED_IDLE, _E.DRAIN, DRAINED, _A.END_CLAIM),
    # a job
    (BUSY, _E.JOB_ENDS, CLAIMED_IDLE, _A.NOTHING),
    (BUSY, _E.SUSPEND, SUSPENDED, _A.SUSPEND_JOB),
    (BUSY, _E.RETIRE, RETIRING, _A.NOTHING),
    (BUSY, _E.VACATE, VACATING, _A.ASK_JOB),
    (BUSY, _E.KILL, KILLING, _A.KILL_JOB),
    (BUSY, _E.RELEASE, KILLING, _A.KILL_JOB),
    (SUSPENDED, _E.CONTINUE, BUSY, _A.RESUME_JOB),
    (SUSPENDED, _E.JOB_ENDS, CLAIMED_IDLE, _A.NOTHING),
    (SUSPENDED, _E.VACATE, VACATING, _A.ASK_JOB),
    (SUSPENDED, _E.KILL, KILLING, _A.KILL_JOB),
    (SUSPENDED, _E.RELEASE, KILLING, _A.KILL_JOB),
    (RETIRING, _E.JOB_ENDS, OWNER, _A.END_CLAIM),
    (RETIRING, _E.STAY, BUSY, _A.NOTHING),
    (RETIRING, _E.VACATE, VACATING, _A.ASK_JOB),
    (RETIRING, _E.KILL, KILLING, _A.KILL_JOB),
    (RETIRING, _E.RELEASE, KILLING, _A.KILL_JOB),
    # a job below an urgent one
    (BUSY, _E.YIELD, YIELDING, _A.SUSPEND_JOB),
    (YIELDING, _E.HAND_BACK, BUSY, _A.RESUME_JOB),
    (YIELDING, _E.JOB_ENDS, OWNER, _A.END_CLAIM),
    (YIELDING, _E.VACATE, VACATING, _A.ASK_JOB),
    (YIELDING, _E.KILL, KILLING, _A.KILL_JOB),
    (YIELDING, _E.RELEASE, KILLING, _A.KILL_JOB),
    # a job that leaves
    (VACATING, _E.KILL, KILLING, _A.KILL_JOB),
    (VACATING, _E.RELEASE, KILLING, _A.KILL_JOB),
    (VACATING, _E.JOB_ENDS, OWNER, _A.END_CLAIM),
    (KILLING, _E.RELEASE, KILLING, _A.NOTHING),
    (KILLING, _E.JOB_ENDS, OWNER, _A.END_CLAIM),
)
TABLE: dict[tuple[SlotCondition, SlotEvent], SlotTransition] = {
    (before, event): SlotTransition(after, action) for before, event, after, action in _ROWS
}


def step(now: SlotCondition, event: SlotEvent) -> SlotTransition:
    """Where an event leads and what has to be done.

    Raises:
        SlotStateError: the table does not list it.
    """
    found = TABLE.get((now, event))
    if found is None:
        possible = ", ".join(listed.value for (before, listed) in TABLE if before == now)
        raise SlotStateError(
            f"cannot {event.value} a slot that is {now}", hint=f"possible now: {possible or 'nothing'}"
        )
    return found


def next_condition(now: SlotCondition, event: SlotEvent) -> SlotCondition:
    """Where an event leads.

    Raises:
        SlotStateError: the table does not list it.
    """
    return step(now, event).after


def draw(conditions: Iterable[SlotCondition] = CONDITIONS) -> str:
    """The table as a Mermaid state diagram, for the docs: one arrow for each pair of conditions, with its events."""
    arrows: dict[tuple[SlotCondition, SlotCondition], list[str]] = {}
    for (before, event), (after, _) in TABLE.items():
        arrows.setdefault((before, after), []).append(event.value)
    lines = ["stateDiagram-v2", f"    [*] --> {_label(OWNER)}"]
    lines += [f'    state "{condition}" as {_label(condition)}' for condition in conditions]
    lines += [f"    {_label(a)} --> {_label(b)}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(lines) + "\n"


def describe() -> str:
    """The table as text: a line for each condition and event."""
    return "\n".join(
        f"{before!s:<20} {event:<14} {after!s:<20} {action}" for (before, event), (after, action) in TABLE.items()
    )


def _label(condition: SlotCondition) -> str:
    return f"{condition.state}{condition.activity}"
