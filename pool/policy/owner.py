"""What a machine's owner wants, as expressions, and what follows from them (TS 8.1, EV 2.7, RL 4.2).

    START         may a job start here, with these ads
    SUSPEND       stop the job where it stands, for a while
    CONTINUE      let a suspended job go on
    PREEMPT       the job has to leave (EV's VACATE)
    KILL          a job that is leaving has had its time
    WANT_SUSPEND  is it worth suspending first
    WANT_VACATE   is the job asked to leave before it is killed
    RANK          which jobs this machine prefers

Each is evaluated with the slot's ad as MY and the job's as TARGET, so that an owner may suspend small jobs and preempt
big ones (RL 4.2: `WANT_SUSPEND = TARGET.ImageSize < 100000`). `judge` is pure: ads, condition and time in, one event or
none out, with the expression that decided. It asks, in this order,

    Owner, Unclaimed, Matched, Claimed Idle     START
    Claimed Busy                                PREEMPT, then SUSPEND with WANT_SUSPEND
    Claimed Retiring                            SUSPEND: it leaves rather than waits
    Claimed Suspended                           PREEMPT, then CONTINUE
    Preempting Vacating                         KILL

and an expression that nothing depends on at the moment is not evaluated. A job that has to leave is asked softly if
WANT_VACATE, and killed at once otherwise. Where the owner grants a retirement (MAX_JOB_RETIREMENT), a running job
that PREEMPT is true for may run on for so long before it has to leave, and no other follows it.

An expression that is undefined, an error, or no truth value is a *fault*: it is told (`Verdict.faults`), and counts as

    START         false: nothing starts on a machine whose owner's wish is not known. Without a job to look at,
                  a START without value that names more than the machine has depends on the job, and is no
                  fault: the slot is offered, and the match decides (also `TARGET.Nice =?= true`, which
                  without a job is plainly false)
    SUSPEND       false: mostly a job does not say what is asked, and the owner's own signs stand beside it
                  in an `||`
    CONTINUE      false: the owner may still be there
    PREEMPT       false for a running job, so that a slip of the pen loses nobody's work; for a suspended one
                  what the papers' time says, so that it does not wait for ever
    KILL          what the papers' time says, so that a machine is given back
    WANT_SUSPEND  true: work is kept
    WANT_VACATE   true: work is kept
    RANK          0: no preference

DESKTOP is the papers' policy with their times: a job may start after 15 minutes without keyboard and with a
load of the owner's own of at most 0.3; it is suspended when the keyboard is touched or that load is above 1.5; it
goes on after 5 quiet minutes; after 10 minutes of suspension it has to leave, and 10 minutes later it is killed.
The owner's load is the machine's without the pool's (`pool.machine.load`); the papers took the whole, which for
jobs of several processes cannot work (VS 7.4). DEDICATED always runs jobs.

Both are kept as texts with macros, in the papers' own notation, so that a configuration may change one of the
times or one of the expressions and still use the rest; `pool.config` reads the same texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.classad import UNDEFINED, ClassAd, Expr, ParseError, evaluate, parse_expr
from pool.classad.flattening import flatten
from pool.classad.references import external
from pool.errors import PoolError
from pool.policy.slots import Activity, Condition, SlotEvent, SlotState

NAMES = ("START", "SUSPEND", "CONTINUE", "PREEMPT", "KILL", "WANT_SUSPEND", "WANT_VACATE", "RANK")
#: What an expression counts as that is a fault; where two times apply, see `judge`.
SAFE = {
    "START": False,
    "SUSPEND": False,
    "CONTINUE": False,
    "PREEMPT": False,
    "KILL": False,
    "WANT_SUSPEND": True,
    "WANT_VACATE": True,
}

#: The times and loads of the papers' policy: seconds, and runnable processes (EV 2.7). `KEYBOARD_TOUCHED` is how young
#: a touch must be to count as one: the kernel notes a terminal's in steps of eight seconds, and it is looked at every
#: five.
TIMES: Mapping[str, float] = {
    "START_IDLE": 900,
    "CONTINUE_IDLE": 300,
    "BACKGROUND_LOAD": 0.3,
    "SUSPEND_LOAD": 1.5,
    "KEYBOARD_TOUCHED": 15,
    "MAX_SUSPEND": 600,
    "MAX_VACATE": 600,
    "MAX_JOB_RETIREMENT": 0,
}
#: Macros that the shipped expressions are made of, for an administrator's own too.
MACROS: Mapping[str, str] = {
    "MINUTE": "60",
    "HOUR": "(60 * 60)",
    "DAY": "(24 * 60 * 60)",
    "NONCONDORLOADAVG": "(TotalLoadAvg - TotalCondorLoadAvg)",
    "STATETIMER": "(CurrentTime - EnteredCurrentState)",
    "ACTIVITYTIMER": "(CurrentTime - EnteredCurrentActivity)",
    "CPUIDLE": "($(NonCondorLoadAvg) <= $(BACKGROUND_LOAD))",
    "CPUBUSY": "($(NonCondorLoadAvg) > $(SUSPEND_LOAD))",
    "KEYBOARDBUSY": "(KeyboardIdle < $(KEYBOARD_TOUCHED))",
}
#: The papers' policy (EV 2.7, TS 8.1), as a configuration would write it.
DESKTOP_TEXTS: Mapping[str, str] = {
    "START": "$(CPUIdle) && KeyboardIdle > $(START_IDLE)",
    "SUSPEND": "$(KeyboardBusy) || $(CPUBusy)",
    "CONTINUE": "$(CPUIdle) && KeyboardIdle > $(CONTINUE_IDLE)",
    "PREEMPT": 'Activity == "Suspended" && $(ActivityTimer) > $(MAX_SUSPEND)',
    "KILL": "$(ActivityTimer) > $(MAX_VACATE)",
    "WANT_SUSPEND": "true",
    "WANT_VACATE": "true",
    "RANK": "0.0",
}
#: For servers and personal pools: jobs always run.
DEDICATED_TEXTS: Mapping[str, str] = {
    "START": "true",
    "SUSPEND": "false",
    "CONTINUE": "true",
    "PREEMPT": "false",
    "KILL": "$(ActivityTimer) > $(MAX_VACATE)",
    "WANT_SUSPEND": "false",
    "WANT_VACATE": "true",
    "RANK": "0.0",
}
SHIPPED_TEXTS = {"desktop": DESKTOP_TEXTS, "dedicated": DEDICATED_TEXTS}

_MACRO = re.compile(r"\$\((\w+)\)")


def filled(text: str, times: Mapping[str, float] = TIMES) -> str:
    """A shipped text with its macros and times put in."""
    while "$(" in text:
        text = _MACRO.sub(lambda match: _macro(match[1].upper(), times), text)
    return text


def _macro(name: str, times: Mapping[str, float]) -> str:
    return f"{times[name]:g}" if name in times else MACROS[name]


def shipped(name: str, times: Mapping[str, float] = TIMES) -> dict[str, str]:
    """The expressions of a shipped policy.

    Args:
        times: as TIMES, with some of them changed.

    Raises:
        PolicyError: there is no such policy.
    """
    texts = SHIPPED_TEXTS.get(name.lower())
    if texts is None:
        raise PolicyError(
            f"POLICY = {name}: there is no such policy", hint=f"one of {', '.join(SHIPPED_TEXTS)}"
        )
    return {key: filled(text, times) for key, text in texts.items()}


class PolicyError(PoolError):
    """A policy expression cannot be read, or there is no policy of that name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An expression that came to no usable value.

    Attributes:
        name: which one.
        value: what it came to: undefined, error, or a value of the wrong kind.
    """

    name: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.name} is {self.value}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the owner's expressions ask of a slot.

    Attributes:
        event: what to do; None leaves everything as it is.
        because: the expression or time that decided; empty when nothing is to be done.
        faults: expressions that were needed and had no usable value.
    """

    event: SlotEvent | None
    because: str = ""
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The owner's expressions, by name: their texts, and read; and the times that stand in for those that fail."""

    texts: Mapping[str, str]
    times: Mapping[str, float] = field(default_factory=lambda: TIMES)
    expressions: Mapping[str, Expr] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, name: str, overrides: Mapping[str, str], times: Mapping[str, float] = TIMES) -> Policy:
        """A shipped policy with some of its expressions or times replaced.

        Raises:
            PolicyError: there is no such policy, or an expression is none.
        """
        times = {**TIMES, **times}
        texts = {**shipped(name, times), **{key: text for key, text in overrides.items() if text}}
        return cls(texts, times, {key: read(key, text) for key, text in texts.items()})

    def value(self, name: str, slot: ClassAd, job: ClassAd | None, now: float) -> Any:
        """What one expression comes to."""
        return evaluate(self.expressions[name], slot, job, now)

    def ask(self, name: str, slot: ClassAd, job: ClassAd | None, now: float) -> bool:
        """One expression as a condition; what it counts as where it is a fault."""
        value = self.value(name, slot, job, now)
        return bool(value) if is_condition(value) else SAFE[name]

    def faults(self, slot: ClassAd, job: ClassAd | None, now: float) -> list[str]:
        """Names of all expressions that are neither true nor false for these ads, needed now or not."""
        return [name for name in SAFE if not is_condition(self.value(name, slot, job, now))]


DESKTOP: Mapping[str, str] = shipped("desktop")
DEDICATED: Mapping[str, str] = shipped("dedicated")
SHIPPED = {"desktop": DESKTOP, "dedicated": DEDICATED}


def read(name: str, text: str) -> Expr:
    """A policy expression.

    Raises:
        PolicyError: it is none.
    """
    try:
        return parse_expr(text, syntax="old")
    except ParseError as error:
        raise PolicyError(f"{name} = {text}: {error}") from error


def is_condition(value: object) -> bool:
    """Whether an expression's value can be taken as true or false."""
    return isinstance(value, (bool, int)) or (isinstance(value, float) and not math.isnan(value))


def wire(policy: Policy, resources: Iterable[str] = ()) -> dict[str, Any]:
    """What a machine's ad says of its owner's policy: the match it asks for and what it prefers.

    A slot accepts a job when START does and the job asks for no more than the slot has.

    Args:
        resources: the machine's own resources beside the standard ones.
    """
    start = policy.texts["START"]
    limits = [
        f"((TARGET.Request{name} ?: {default}) <= MY.{name})"
        for name, default in (("Cpus", 1), ("Memory", 0), ("Disk", 0))
    ]
    limits += [f"((TARGET.Request{name} ?: 0) <= (MY.{name} ?: 0))" for name in ("GPUs", *resources)]
    return {
        "Start": [start],
        "Requirements": [" && ".join([f"({start})", *limits])],
        "Rank": [policy.texts["RANK"]],
    }


def decide(
    policy: Policy, slot: ClassAd, job: ClassAd | None, condition: Condition, now: float
) -> SlotEvent | None:
    """What the owner's expressions ask of a slot now, as `judge` has it."""
    return judge(policy, slot, job, condition, now).event


def judge(policy: Policy, slot: ClassAd, job: ClassAd | None, condition: Condition, now: float) -> Verdict:
    """What the owner's expressions ask of a slot now, and why (EV 2.7: every five seconds).

    Args:
        slot: the slot's ad with fresh facts.
        job: the ad of the job in it; None where there is none.
        now: wall time, seconds.
    """
    return _Judge(policy, slot, job, now).on(condition)


class _Judge:
    """One judgement: notes the faults of what it asks."""

    def __init__(self, policy: Policy, slot: ClassAd, job: ClassAd | None, now: float) -> None:
        self._policy = policy
        self._slot = slot
        self._job = job
        self._now = now
        self._faults: list[Fault] = []

    def on(self, condition: Condition) -> Verdict:
        match condition:
            case (SlotState.OWNER, _):
                return self._so(SlotEvent.OWNER_LEAVES, "START") if self._offered() else self._so(None)
            case (SlotState.UNCLAIMED | SlotState.MATCHED, _) | (SlotState.CLAIMED, Activity.IDLE):
                return self._so(None) if self._offered() else self._so(SlotEvent.OWNER_RETURNS, "START")
            case (SlotState.PREEMPTING, Activity.VACATING):
                kill = self._true("KILL", self._since("MAX_VACATE"))
                return self._so(SlotEvent.KILL, "KILL") if kill else self._so(None)
            case (SlotState.CLAIMED, Activity.SUSPENDED):
                if self._true("PREEMPT", self._since("MAX_SUSPEND")):
                    return self._leave("PREEMPT")
                return self._so(SlotEvent.CONTINUE, "CONTINUE") if self._true("CONTINUE") else self._so(None)
            case (SlotState.CLAIMED, Activity.BUSY):
                if self._true("PREEMPT"):
                    if self._policy.times["MAX_JOB_RETIREMENT"] > 0:
                        return self._so(SlotEvent.RETIRE, "PREEMPT")
                    return self._leave("PREEMPT")
                if not self._true("SUSPEND"):
                    return self._so(None)
                if self._true("WANT_SUSPEND"):
                    return self._so(SlotEvent.SUSPEND, "SUSPEND")
                return self._leave("SUSPEND")
            case (SlotState.CLAIMED, Activity.RETIRING):
                if self._since("MAX_JOB_RETIREMENT"):
                    return self._leave("MAX_JOB_RETIREMENT")
                return self._leave("SUSPEND") if self._true("SUSPEND") else self._so(None)
        return self._so(None)

    def _offered(self) -> bool:
        """START without a job: true, or dependent on the job."""
        value = self._policy.value("START", self._slot, None, self._now)
        if value is UNDEFINED:
            return True
        if is_condition(value) and value:
            return True
        return self._asks_the_job("START") or self._usable("START", value, SAFE["START"])

    def _asks_the_job(self, name: str) -> bool:
        """Whether an expression depends on more than the slot's own ad, whatever it comes to without."""
        rest = flatten(self._policy.expressions[name], self._slot)
        return bool(external(rest, self._slot))

    def _true(self, name: str, otherwise: bool | None = None) -> bool:
        value = self._policy.value(name, self._slot, self._job, self._now)
        return self._usable(name, value, SAFE[name] if otherwise is None else otherwise)

    def _usable(self, name: str, value: object, otherwise: bool) -> bool:
        if is_condition(value):
            return bool(value)
        self._faults.append(Fault(name, str(value).lower() if not isinstance(value, str) else repr(value)))
        return otherwise

    def _since(self, limit: str) -> bool:
        """Whether the slot has been at what it does for longer than one of the papers' times."""
        entered = self._slot.value("EnteredCurrentActivity", None)
        return isinstance(entered, (int, float)) and self._now - entered > self._policy.times[limit]

    def _leave(self, because: str) -> Verdict:
        return self._so(SlotEvent.VACATE if self._true("WANT_VACATE") else SlotEvent.KILL, because)

    def _so(self, event: SlotEvent | None, because: str = "") -> Verdict:
        return Verdict(event, because, tuple(self._faults))
