"""What a machine's owner wants, as expressions, and what follows from them (TS 8.1, EV 2.7, RL 4.2).

    START         may a job start here, with these ads
    SUSPEND       stop the job where it stands, for a while
    CONTINUE      let a suspended job go on
    PREEMPT       the job has to leave
    KILL          a job that is leaving has had its time
    WANT_SUSPEND  is it worth suspending first
    WANT_VACATE   is the job asked to leave before it is killed
    RANK          which jobs this machine prefers

`decide` is pure: ads, state and time in, one event or none out. An expression that is undefined or an error counts as
what protects the owner: START as false, SUSPEND as false (nothing is known to protect from), CONTINUE as false,
PREEMPT and KILL as false so that a typing error loses nobody's work, WANT_SUSPEND and WANT_VACATE as true. `faults`
names them.

`DESKTOP` is the papers' policy with their times: a job may start after 15 minutes without keyboard and with a load of
the owner's own below 0.3; it is suspended when the keyboard is touched or that load rises above 1.5; it goes on after
5 quiet minutes; after 10 minutes of suspension it has to leave, and 10 minutes later it is killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pool.classad import ClassAd, ParseError, evaluate, parse_expr
from pool.errors import PoolError
from pool.policy.slots import Activity, Condition, SlotEvent, SlotState

NAMES = ("START", "SUSPEND", "CONTINUE", "PREEMPT", "KILL", "WANT_SUSPEND", "WANT_VACATE", "RANK")
#: What an expression counts as that is undefined or an error.
SAFE = {
    "START": False,
    "SUSPEND": False,
    "CONTINUE": False,
    "PREEMPT": False,
    "KILL": False,
    "WANT_SUSPEND": True,
    "WANT_VACATE": True,
}

MINUTE = 60
_OWNER_LOAD = "(TotalLoadAvg - TotalCondorLoadAvg)"
_IN_STATE = "(CurrentTime - EnteredCurrentActivity)"

#: The papers' policy (EV 2.7, TS 8.1).
DESKTOP: Mapping[str, str] = {
    "START": f"{_OWNER_LOAD} <= 0.3 && KeyboardIdle > {15 * MINUTE}",
    "SUSPEND": f"KeyboardIdle < {MINUTE} || {_OWNER_LOAD} > 1.5",
    "CONTINUE": f"{_OWNER_LOAD} <= 0.3 && KeyboardIdle > {5 * MINUTE}",
    "PREEMPT": f'Activity == "Suspended" && {_IN_STATE} > {10 * MINUTE}',
    "KILL": f"{_IN_STATE} > {10 * MINUTE}",
    "WANT_SUSPEND": "true",
    "WANT_VACATE": "true",
    "RANK": "0.0",
}
#: For servers and personal pools: jobs always run.
DEDICATED: Mapping[str, str] = {
    "START": "true",
    "SUSPEND": "false",
    "CONTINUE": "true",
    "PREEMPT": "false",
    "KILL": "false",
    "WANT_SUSPEND": "false",
    "WANT_VACATE": "true",
    "RANK": "0.0",
}
SHIPPED = {"desktop": DESKTOP, "dedicated": DEDICATED}


class PolicyError(PoolError):
    """A policy expression cannot be read, or there is no policy of that name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The owner's expressions, by name, as text."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, name: str, overrides: Mapping[str, str]) -> Policy:
        """A shipped policy with some of its expressions replaced.

        Raises:
            PolicyError: there is no such policy, or an expression is none.
        """
        shipped = SHIPPED.get(name.lower())
        if shipped is None:
            raise PolicyError(f"POLICY = {name}: there is no such policy", hint=f"one of {', '.join(SHIPPED)}")
        texts = {**shipped, **{key: text for key, text in overrides.items() if text}}
        for key, text in texts.items():
            try:
                parse_expr(text, syntax="old")
            except ParseError as error:
                raise PolicyError(f"{key} = {text}: {error}") from error
        return cls(texts)

    def ask(self, name: str, slot: ClassAd, job: ClassAd | None, now: float) -> bool:
        """One expression as a condition."""
        value = evaluate(parse_expr(self.texts[name], syntax="old"), slot, job, now)
        if isinstance(value, (bool, int, float)):
            return bool(value)
        return SAFE[name]

    def faults(self, slot: ClassAd, job: ClassAd | None, now: float) -> list[str]:
        """Names of expressions that are neither true nor false for these ads, to be told to the administrator."""
        found = []
        for name in SAFE:
            value = evaluate(parse_expr(self.texts[name], syntax="old"), slot, job, now)
            if not isinstance(value, (bool, int, float)):
                found.append(name)
        return found


def wire(policy: Policy) -> dict[str, Any]:
    """What a machine's ad says of its owner's policy: the match it asks for and what it prefers.

    A slot accepts a job when START does and the job asks for no more than the slot has.
    """
    start = policy.texts["START"]
    limits = " && ".join(
        f"((TARGET.Request{name} ?: {default}) <= MY.{name})"
        for name, default in (("Cpus", 1), ("Memory", 0), ("Disk", 0))
    )
    limits += " && ((TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0))"
    return {"Start": [start], "Requirements": [f"({start}) && {limits}"], "Rank": [policy.texts["RANK"]]}


def decide(policy: Policy, slot: ClassAd, job: ClassAd | None, condition: Condition, now: float) -> SlotEvent | None:
    """What the owner's expressions ask of a slot now (EV 2.7, evaluated every five seconds).

    Args:
        slot: the slot's ad with fresh facts.
        job: the ad of the job in it.
        now: wall time, seconds.
    """
    state, activity = condition
    if state is SlotState.OWNER:
        return SlotEvent.OWNER_LEAVES if policy.ask("START", slot, None, now) or _undecided(policy, slot, now) else None
    if state in (SlotState.UNCLAIMED, SlotState.MATCHED):
        stays = policy.ask("START", slot, None, now) or _undecided(policy, slot, now)
        return None if stays else SlotEvent.OWNER_RETURNS
    if state is SlotState.PREEMPTING:
        if activity is Activity.VACATING and policy.ask("KILL", slot, job, now):
            return SlotEvent.KILL
        return None
    if activity is Activity.SUSPENDED:
        if policy.ask("PREEMPT", slot, job, now):
            return _leave(policy, slot, job, now)
        return SlotEvent.CONTINUE if policy.ask("CONTINUE", slot, job, now) else None
    if activity in (Activity.BUSY, Activity.RETIRING):
        if policy.ask("PREEMPT", slot, job, now):
            return _leave(policy, slot, job, now)
        if policy.ask("SUSPEND", slot, job, now):
            if policy.ask("WANT_SUSPEND", slot, job, now) and activity is Activity.BUSY:
                return SlotEvent.SUSPEND
            return _leave(policy, slot, job, now)
    return None


def _leave(policy: Policy, slot: ClassAd, job: ClassAd | None, now: float) -> SlotEvent:
    return SlotEvent.VACATE if policy.ask("WANT_VACATE", slot, job, now) else SlotEvent.KILL


def _undecided(policy: Policy, slot: ClassAd, now: float) -> bool:
    """START that depends on the job is neither true nor false without one: the slot is offered, the match decides."""
    value = evaluate(parse_expr(policy.texts["START"], syntax="old"), slot, None, now)
    return not isinstance(value, (bool, int, float))
