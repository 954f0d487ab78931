"""The dedicated scheduler's decisions: section 3.3 of Wright 2001, and what its sections 4 and 6 promise.

**The paper.** One queue of dedicated jobs, in order. A cycle looks at all machines that are claimed by the dedicated
scheduler, or could be, and considers job after job. A job that claimed and idle machines satisfy starts. A job that
also needs unclaimed ones has them requested, and its machines are taken out of the list. A job that needs busy ones,
too, ends the cycle: the scheduler waits for its own jobs to end, so that no stream of small jobs starves a large one. A
job that all configured machines could not satisfy is skipped. Claims are the scheduler's own: they serve any user's
job, one after the other, without a negotiation. No duration is asked of anybody. Machines that the head of the queue
waits with are *holes*, and opportunistic jobs, which can be saved, fill them.

**What that costs, and what is done about it.** Without the holes' filling the discipline loses a third of the machines
(docs/dedicated.md has the figures): they wait for the head together. Filling holes with opportunistic jobs gives the
machines back to somebody, not to the waiting gangs. Three further means shorten their wait. Where durations are
expected, later jobs that do not delay the head are backfilled (EASY, conservative). Where gangs can be saved, no
duration is needed: such a gang is backfilled behind any head, and leaves when the head can start. And with time
sharing all gangs that can be saved share the machines by the time that they have had.

**The discipline**, job after job in the queue's order:

| case | can the job be placed on | decision |
|---|---|---|
| a | claimed idle machines alone | start |
| b | these, and unclaimed ones, and those that an opportunistic job can leave | request these; keep the claimed ones |
| b' | these, and machines of gangs that were backfilled and can be saved | save those gangs; keep the rest |
| c | all configured machines, busy ones included | wait; later jobs start only by `backfill` |
| d | not even these | skip, in words; later jobs are considered |
| e | the machines of the reservation that it names | as a and b among those; else wait, and block nobody |
| f | machines that a coming reservation needs, and it cannot be saved | wait, and block nobody |

| then | decision |
|---|---|
| an idle claim that no job got | keep, lend or release (`holes`) |
| a reservation begins | its machines are chosen and cleared by saving (`reservations`) |

A waiting gang holds no machine: only the cycle gives machines, to whole gangs. So two gangs that each hold half of
what the other lacks cannot come about. Machines that are kept for a gang of case b are recomputed in every cycle; a
machine that dies meanwhile only makes the next cycle compute something else.

Everything is a pure function of the present state: the same input gives the same output, whatever was decided before.

| module | holds |
|---|---|
| `model` | jobs, machines, reservations, settings, as data |
| `decisions` | decisions and plans, as data |
| `discipline` | `decide`: one cycle |
| `flow` | the matching of parts to machines, over classes |
| `supply` | the machines of one cycle by how soon they can be had |
| `order` | whose job is considered next |
| `holes` | idle claims: keep, lend, release |
| `timeline` | machines over time: the shadow of EASY, the profile of conservative backfill |
| `time_sharing` | which gangs run where all can be saved |
| `reservations` | machines promised for a time |
| `hierarchy` | several dedicated schedulers for one machine: loans, and what a lower one may run |
| `expectations` | when a running gang will probably end |
| `predictions` | how long a job will run, from its user's earlier ones; how good expected starts were |
| `plan` | the discipline on a virtual clock: expected starts, and the chart of machines over time |
"""

from __future__ import annotations

from pool.policy.dedicated.decisions import (
    Decisions,
    KeepClaims,
    KeepReason,
    LendClaims,
    Plan,
    PlanBar,
    PlanBasis,
    PlannedStart,
    ReleaseClaims,
    RequestMachines,
    SaveGang,
    SkipGang,
    SkipReason,
    StartGang,
    WaitForMachines,
)
from pool.policy.dedicated.discipline import decide, decide_in_steps
from pool.policy.dedicated.hierarchy import (
    MachineStanding,
    claim_refusal,
    is_worth,
    lender_of,
    lent_away,
    must_leave,
    promised_until,
    read_standing,
    standing_for,
)
from pool.policy.dedicated.model import (
    WRIGHT,
    Backfill,
    DedicatedJob,
    DedicatedMachine,
    DedicatedRun,
    DedicatedSettings,
    MachineClass,
    MachineState,
    PartClass,
    QueueOrder,
    Reservation,
    Share,
    UserQueue,
    group_machines,
)
from pool.policy.dedicated.plan import make_plan, plan_in_steps
from pool.policy.dedicated.predictions import RunPredictor, StartErrors, read_runs
from pool.policy.dedicated.reservations import ReservationQuota, refusal

__all__ = [
    "WRIGHT",
    "Backfill",
    "Decisions",
    "DedicatedJob",
    "DedicatedMachine",
    "DedicatedSettings",
    "KeepClaims",
    "KeepReason",
    "LendClaims",
    "MachineClass",
    "MachineStanding",
    "MachineState",
    "PartClass",
    "Plan",
    "PlanBar",
    "PlanBasis",
    "PlannedStart",
    "QueueOrder",
    "ReleaseClaims",
    "RequestMachines",
    "Reservation",
    "ReservationQuota",
    "RunPredictor",
    "DedicatedRun",
    "SaveGang",
    "Share",
    "SkipGang",
    "SkipReason",
    "StartErrors",
    "StartGang",
    "UserQueue",
    "WaitForMachines",
    "claim_refusal",
    "decide",
    "decide_in_steps",
    "group_machines",
    "is_worth",
    "lender_of",
    "lent_away",
    "make_plan",
    "plan_in_steps",
    "must_leave",
    "promised_until",
    "read_runs",
    "read_standing",
    "refusal",
    "standing_for",
]
