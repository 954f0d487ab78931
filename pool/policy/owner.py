"""The wishes of a machine's owner, as expressions, and their consequences (TS 8.1, EV 2.7, RL 4.2).

    START         may a job start here, with these ads
    SUSPEND       stop the job where it stands, for a while
    CONTINUE      let a suspended job go on
    PREEMPT       the job has to leave (EV's VACATE)
    KILL          a job that is leaving has had its time
    WANT_SUSPEND  is it worth suspending first
    WANT_VACATE   is the job asked to leave before it is killed
    WANT_CHECKPOINT  may a leaving job that is asked first have a last checkpoint made
    START_URGENT  may this urgent job suspend the one that runs (D7; `pool.policy.urgent`)
    RANK          which jobs this machine prefers
    MAX_JOB_RETIREMENT  seconds that a job may run in any case; the job may wish for less (MaxJobRetirementTime)
    SLOT_WEIGHT   how much the slot counts in its user's usage

Each is evaluated with the slot's ad as MY and the job's as TARGET, so that an owner may suspend small jobs and preempt
big ones (RL 4.2: `WANT_SUSPEND = TARGET.ImageSize < 100000`). `judge` is pure: ads, condition and time in, one event or
none out, with the expression that decided. It asks, in this order,

    Owner, Unclaimed, Matched, Claimed Idle     START
    Claimed Busy                                PREEMPT, then SUSPEND with WANT_SUSPEND
    Claimed Retiring                            MAX_JOB_RETIREMENT, then SUSPEND: it leaves rather than waits
    Claimed Suspended                           PREEMPT, then CONTINUE
    Claimed Yielding                            PREEMPT
    Preempting Vacating                         KILL

and an expression that nothing depends on at the moment is not evaluated. A job that has to leave is asked softly if
WANT_VACATE, and killed at once otherwise. A job that is asked softly has a last checkpoint made in place of the soft
signal, if it can be saved and WANT_CHECKPOINT. MAX_VACATE later it is killed, whatever it does. docs/owner.md lists
the attributes that expressions may use. Where the owner grants a retirement (MAX_JOB_RETIREMENT), a running job for
which PREEMPT is true, or that another job is to replace, runs on until it has run for that time since its start,
suspensions not counted. No other job follows it meanwhile.

An expression that is undefined, an error, or of the wrong type is a *fault*: it is reported (`OwnerVerdict.faults`),
and counts as

    START         false: nothing starts on a machine whose owner's wish is not known. Without a job to look at,
                  a START without value that names more than the machine has depends on the job, and is no
                  fault: the slot is offered, and the match decides (also `TARGET.Nice =?= true`, which without a job is
                  plainly false). A name that neither the machine nor every job has is reported nevertheless
    SUSPEND       false: mostly a job does not say what is asked, and the owner's own signs stand beside it
                  in an `||`
    CONTINUE      false: the owner may still be there
    PREEMPT       false for a running job, so that a slip of the pen loses nobody's work; for a suspended one
                  what the papers' time says, so that it does not wait for ever
    KILL          what the papers' time says, so that a machine is given back
    WANT_SUSPEND  true: work is kept
    WANT_VACATE   true: work is kept
    WANT_CHECKPOINT  true: work is kept
    START_URGENT  false: nobody's job is stopped on a guess
    RANK          0: no preference, and no job is preempted for another
    MAX_JOB_RETIREMENT  0: what the owner did not plainly promise is not promised
    SLOT_WEIGHT   Cpus

The policies that come with the program are `pool.policy.shipped`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pool.classad import UNDEFINED, ClassAd, Expr, ParseError, evaluate, parse_expr
from pool.classad.flattening import flatten
from pool.classad.references import external
from pool.policy import urgent
from pool.policy.managed import SCHEDULER, managed
from pool.policy.shipped import TIMES, PolicyError, shipped
from pool.policy.slots import Activity, SlotCondition, SlotEvent, SlotState

NAMES = (
    "START",
    "SUSPEND",
    "CONTINUE",
    "PREEMPT",
    "KILL",
    "WANT_SUSPEND",
    "WANT_VACATE",
    "WANT_CHECKPOINT",
    "START_URGENT",
    "RANK",
    "MAX_JOB_RETIREMENT",
    "SLOT_WEIGHT",
)
#: The value that an expression with a fault counts as; where two times apply, see `judge`.
SAFE = {
    "START": False,
    "SUSPEND": False,
    "CONTINUE": False,
    "PREEMPT": False,
    "KILL": False,
    "WANT_SUSPEND": True,
    "WANT_VACATE": True,
    "WANT_CHECKPOINT": True,
    "START_URGENT": False,
}
#: An attribute that only dedicated schedulers' jobs have; expressions ask by =?= whether it is there.
_OPTIONAL = SCHEDULER.lower()
#: Expressions that can leave a slot as it is.
_DECIDE = ("START", "SUSPEND", "PREEMPT")
#: Attributes that every job has (lower case): an expression without a job may miss them.
EVERY_JOB_HAS = frozenset(
    {
        "owner",
        "user",
        "cmd",
        "iwd",
        "imagesize",
        "diskusage",
        "jobprio",
        "jobuniverse",
        "jobstatus",
        "qdate",
        "clusterid",
        "procid",
        "numjobstarts",
        "requestcpus",
        "requestmemory",
        "requestdisk",
        "requestgpus",
        "nicejob",
        "niceuser",
        "accountinggroup",
        "acctgroup",
        "filesystemdomain",
        "jobstartdate",
        "enteredcurrentstatus",
        "maxjobretirementtime",
        "concurrencylimits",
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """An expression that came to no usable value.

    Attributes:
        name: which one.
        value: what it came to: undefined, error, or a value of the wrong kind.
        missing: attributes it names that are not there.
    """

    name: str
    value: str
    missing: tuple[str, ...] = field(default=(), compare=False)

    @property
    def text(self) -> str:
        missing = f": no attribute {', '.join(self.missing)}" if self.missing else ""
        return f"{self.name}: {self.value}{missing}"


@dataclass(frozen=True, slots=True)
class OwnerVerdict:
    """The demand of the owner's expressions on a slot.

    Attributes:
        event: what to do; None leaves everything as it is.
        because: the expression or time that decided; empty when nothing is to be done.
        faults: expressions that were needed and had no usable value.
        asked: all expressions that were needed.
    """

    event: SlotEvent | None
    because: str = ""
    faults: tuple[Fault, ...] = ()
    asked: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class OwnerPolicy:
    """The owner's expressions, by name: their texts, and read; and the times that stand in for those that fail."""

    texts: Mapping[str, str]
    times: Mapping[str, float] = field(default_factory=lambda: TIMES)
    expressions: Mapping[str, Expr] = field(default_factory=dict, repr=False)

    @classmethod
    def from_shipped(
        cls,
        name: str,
        overrides: Mapping[str, str],
        times: Mapping[str, float] = TIMES,
        schedulers: Sequence[str] = (),
    ) -> OwnerPolicy:
        """A shipped policy with some of its expressions or times replaced.

        Args:
            schedulers: the dedicated schedulers that the machine is managed by; see `pool.policy.managed`.

        Raises:
            PolicyError: there is no such policy, or an expression is none.
        """
        times = {**TIMES, **times}
        texts = {**shipped(name, times), **{key: text for key, text in overrides.items() if text}}
        expressions = {key: read(key, text) for key, text in texts.items()}
        texts = managed(texts, schedulers)
        return cls(texts, times, {key: read(key, text) for key, text in texts.items()} if schedulers else expressions)

    def value(self, name: str, slot: ClassAd, job: ClassAd | None, now: float) -> Any:
        """The value of one expression."""
        return evaluate(self.expressions[name], slot, job, now)

    def evaluate_condition(self, name: str, slot: ClassAd, job: ClassAd | None, now: float) -> bool:
        """One expression as a condition; what it counts as where it is a fault."""
        value = self.value(name, slot, job, now)
        return bool(value) if is_condition(value) else SAFE[name]

    def faults(self, slot: ClassAd, job: ClassAd | None, now: float) -> list[str]:
        """Names of all expressions that are neither true nor false for these ads, needed now or not."""
        return [name for name in SAFE if not is_condition(self.value(name, slot, job, now))]


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


def wire(policy: OwnerPolicy, resources: Iterable[str] = ()) -> dict[str, Any]:
    """The owner's policy in a machine's ad: the match it asks for and the jobs it prefers.

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
    said: dict[str, Any] = {
        "Start": [start],
        "Requirements": [" && ".join([f"({start})", *limits])],
        "Rank": [policy.texts["RANK"]],
    }
    if policy.expressions["START_URGENT"].value is not False:
        said[urgent.START_URGENT] = [policy.texts["START_URGENT"]]
    return said


def decide(
    policy: OwnerPolicy, slot: ClassAd, job: ClassAd | None, condition: SlotCondition, now: float
) -> SlotEvent | None:
    """The present demand of the owner's expressions on a slot, as `judge` has it."""
    return judge(policy, slot, job, condition, now).event


def judge(
    policy: OwnerPolicy, slot: ClassAd, job: ClassAd | None, condition: SlotCondition, now: float
) -> OwnerVerdict:
    """The present demand of the owner's expressions on a slot, and why (EV 2.7: every five seconds).

    Args:
        slot: the slot's ad with fresh facts.
        job: the ad of the job in it; None where there is none.
        now: wall time, seconds.
    """
    return _Judge(policy, slot, job, now).decide(condition)


def is_decided(policy: OwnerPolicy, condition: SlotCondition) -> bool:
    """Whether plain constants decide that nothing is asked of a slot in this condition: whatever ads and clock say.

    Such a slot need not be looked at again before its condition or the policy changes.
    """
    constant = {name: expression.value for name, expression in policy.expressions.items() if name in _DECIDE}
    match condition:
        case (SlotState.UNCLAIMED | SlotState.MATCHED, _) | (SlotState.CLAIMED, Activity.IDLE):
            return constant["START"] is True
        case (SlotState.OWNER, _):
            return constant["START"] is False
        case (SlotState.CLAIMED, Activity.BUSY):
            return constant["PREEMPT"] is False and constant["SUSPEND"] is False
        case (SlotState.CLAIMED, Activity.YIELDING):
            return constant["PREEMPT"] is False
    return False


def judge_replaced(policy: OwnerPolicy, slot: ClassAd, job: ClassAd, now: float) -> OwnerVerdict:
    """The next step of a running job that another is to replace: retire, leave, or be killed (RL 4.3)."""
    return _Judge(policy, slot, job, now).replaced("preemption")


def wants_checkpoint(policy: OwnerPolicy, slot: ClassAd, job: ClassAd, now: float) -> tuple[bool, OwnerVerdict]:
    """Whether a job that has to leave may have a last checkpoint (WANT_CHECKPOINT); the verdict has faults only."""
    judged = _Judge(policy, slot, job, now)
    return judged.condition("WANT_CHECKPOINT"), judged.no_event()


def preference(policy: OwnerPolicy, slot: ClassAd, job: ClassAd, now: float) -> tuple[float, OwnerVerdict]:
    """How much the machine likes a job (RANK); the verdict has its faults only."""
    judged = _Judge(policy, slot, job, now)
    return judged.amount("RANK") or 0.0, judged.no_event()


def weight(policy: OwnerPolicy, slot: ClassAd, now: float) -> tuple[float | None, OwnerVerdict]:
    """The weight of the slot (SLOT_WEIGHT), None where that is no amount; the verdict has its faults only."""
    judged = _Judge(policy, slot, None, now)
    return judged.weight(), judged.no_event()


class _Judge:
    """One judgement: notes the faults of what it asks."""

    def __init__(self, policy: OwnerPolicy, slot: ClassAd, job: ClassAd | None, now: float) -> None:
        self._policy = policy
        self._slot = slot
        self._job = job
        self._now = now
        self._faults: list[Fault] = []
        self._names: list[str] = []

    def decide(self, condition: SlotCondition) -> OwnerVerdict:
        match condition:
            case (SlotState.OWNER, _):
                return self._verdict(SlotEvent.OWNER_LEAVES, "START") if self._offered() else self._verdict(None)
            case (SlotState.UNCLAIMED | SlotState.MATCHED, _) | (SlotState.CLAIMED, Activity.IDLE):
                return self._verdict(None) if self._offered() else self._verdict(SlotEvent.OWNER_RETURNS, "START")
            case (SlotState.PREEMPTING, Activity.VACATING):
                kill = self._true("KILL", self._since("MAX_VACATE"))
                return self._verdict(SlotEvent.KILL, "KILL") if kill else self._verdict(None)
            case (SlotState.CLAIMED, Activity.SUSPENDED):
                if self._true("PREEMPT", self._since("MAX_SUSPEND")):
                    return self._vacate_or_kill("PREEMPT")
                return self._verdict(SlotEvent.CONTINUE, "CONTINUE") if self._true("CONTINUE") else self._verdict(None)
            case (SlotState.CLAIMED, Activity.BUSY):
                if self._true("PREEMPT"):
                    return self.replaced("PREEMPT")
                if not self._true("SUSPEND"):
                    return self._verdict(None)
                if self._true("WANT_SUSPEND"):
                    return self._verdict(SlotEvent.SUSPEND, "SUSPEND")
                return self._vacate_or_kill("SUSPEND")
            case (SlotState.CLAIMED, Activity.YIELDING):
                return self._vacate_or_kill("PREEMPT") if self._true("PREEMPT") else self._verdict(None)
            case (SlotState.CLAIMED, Activity.RETIRING):
                if self._retirement_left() <= 0:
                    return self._vacate_or_kill("MAX_JOB_RETIREMENT")
                return self._vacate_or_kill("SUSPEND") if self._true("SUSPEND") else self._verdict(None)
        return self._verdict(None)

    def replaced(self, because: str) -> OwnerVerdict:
        """A running job has to make room, in its retirement if it has any left."""
        if self._retirement_left() > 0:
            return self._verdict(SlotEvent.RETIRE, because)
        return self._vacate_or_kill(because)

    def condition(self, name: str) -> bool:
        """An expression that is to be true or false; what it counts as where it is a fault."""
        return self._true(name)

    def amount(self, name: str) -> float | None:
        """An expression that is to be a number; None where it is a fault."""
        value = self._value(name)
        if is_condition(value):
            return float(value)
        self._fault(name, value)
        return None

    def weight(self) -> float | None:
        """SLOT_WEIGHT, which is not below nothing."""
        value = self.amount("SLOT_WEIGHT")
        if value is not None and not 0 <= value < math.inf:
            self._fault("SLOT_WEIGHT", value)
            return None
        return value

    def no_event(self) -> OwnerVerdict:
        """Nothing to be done, with the faults of what was asked."""
        return self._verdict(None)

    def _retirement_left(self) -> float:
        """Seconds that the job may run on for in any case."""
        promised = self.amount("MAX_JOB_RETIREMENT") or 0.0
        if promised <= 0:
            return 0.0
        wish = self._job.value("MaxJobRetirementTime", None, self._slot, self._now) if self._job is not None else None
        if isinstance(wish, (int, float)) and is_condition(wish):
            promised = min(promised, float(wish))
        start = self._number("JobStart")
        if start is None:
            retiring = self._slot.value("Activity", "") == str(Activity.RETIRING)
            start = self._number("EnteredCurrentActivity") if retiring else self._now
        suspended = self._number("TotalJobSuspendTime") or 0.0
        return promised - (self._now - (self._now if start is None else start) - suspended)

    def _number(self, name: str) -> float | None:
        value = self._slot.value(name, None)
        return float(value) if isinstance(value, (int, float)) else None

    def _offered(self) -> bool:
        """START without a job: true, or dependent on the job."""
        value = self._value("START")
        if value is UNDEFINED:
            missing = [name for name in self._missing("START") if name.lower() not in EVERY_JOB_HAS]
            if missing:
                self._faults.append(Fault("START", "undefined without a job", tuple(missing)))
            return True
        if is_condition(value) and value:
            return True
        return self._asks_the_job("START") or self._usable("START", value, SAFE["START"])

    def _asks_the_job(self, name: str) -> bool:
        """Whether an expression depends on more than the slot's own ad, whatever it comes to without."""
        rest = flatten(self._policy.expressions[name], self._slot)
        return bool(external(rest, self._slot))

    def _value(self, name: str) -> Any:
        self._names.append(name)
        return self._policy.value(name, self._slot, self._job, self._now)

    def _true(self, name: str, otherwise: bool | None = None) -> bool:
        return self._usable(name, self._value(name), SAFE[name] if otherwise is None else otherwise)

    def _usable(self, name: str, value: object, otherwise: bool) -> bool:
        if is_condition(value):
            return bool(value)
        self._fault(name, value)
        return otherwise

    def _fault(self, name: str, value: object) -> None:
        text = str(value).lower() if not isinstance(value, str) else repr(value)
        self._faults.append(Fault(name, text, tuple(self._missing(name)) if value is UNDEFINED else ()))

    def _missing(self, name: str) -> list[str]:
        """Attributes that an expression names and neither ad has; without a job, the job's own are not known."""
        found: list[str] = []
        for named in sorted(external(self._policy.expressions[name], self._slot)):
            scope, _, attribute = named.rpartition(".")
            if (self._job is None and scope) or attribute == _OPTIONAL:
                continue
            if self._job is None or attribute not in self._job:
                found.append(named)
        return found

    def _since(self, limit: str) -> bool:
        """Whether the slot has been at what it does for longer than one of the papers' times."""
        entered = self._number("EnteredCurrentActivity")
        return entered is not None and self._now - entered > self._policy.times[limit]

    def _vacate_or_kill(self, because: str) -> OwnerVerdict:
        return self._verdict(SlotEvent.VACATE if self._true("WANT_VACATE") else SlotEvent.KILL, because)

    def _verdict(self, event: SlotEvent | None, because: str = "") -> OwnerVerdict:
        return OwnerVerdict(event, because, tuple(self._faults), tuple(self._names))
