"""Why a machine runs nothing, what would move the job that it runs, and what the pool's idle jobs are to it.

`owners_view` looks at the owner's expressions that matter in the slot's condition, as `pool.policy.owner.judge` does;
`demand` asks every kind of idle job and the machine whether they suit each other, clause by clause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pool.classad import UNDEFINED, ClassAd, Expr, accepts, evaluate, parse_expr
from pool.policy.matching.clauses import split
from pool.policy.owner import OwnerPolicy, is_condition, judge
from pool.policy.slots import Activity, SlotCondition, SlotState
from pool.policy.why import crowd
from pool.policy.why.findings import Demand, Finding, Rule, SlotFinding, Trouble
from pool.policy.why.holding import EVALUATIONS, Piecemeal
from pool.policy.why.job import clauses_of, shares
from pool.policy.why.wording import amount, bare, shorten, wording

#: Attributes whose values are shown with a clause, and clauses shown of an expression.
FEW, CLAUSES = 3, 6
_BY_ACTIVITY: dict[Activity, tuple[tuple[str, str], ...]] = {
    Activity.BUSY: (("SUSPEND", "suspend the job"), ("PREEMPT", "have the job leave")),
    Activity.RETIRING: (("SUSPEND", "have the job leave"),),
    Activity.SUSPENDED: (("CONTINUE", "let the job go on"), ("PREEMPT", "have the job leave")),
    Activity.YIELDING: (("PREEMPT", "have the job leave"),),
    Activity.VACATING: (("KILL", "kill the job"),),
}
_VOLATILE = frozenset({"currenttime", "enteredcurrentstate", "enteredcurrentactivity", "my", "target"})


@dataclass(frozen=True, slots=True)
class IdleJobKind:
    """A kind of idle job: its ad, how many there are, and whose (as cycles name him)."""

    ad: ClassAd
    count: int
    submitter: str = ""


def slot_finding(ad: ClassAd) -> SlotFinding:
    """A slot as its ad has it."""
    since = crowd.number(ad, "EnteredCurrentActivity") or crowd.number(ad, "EnteredCurrentState") or 0.0
    return SlotFinding(
        crowd.text(ad, "Name"),
        crowd.text(ad, "State") or "Unknown",
        crowd.text(ad, "Activity"),
        float(since),
        crowd.text(ad, "RemoteUser") or crowd.text(ad, "RemoteOwner"),
        crowd.text(ad, "JobId"),
        int(crowd.number(ad, "NumDynamicSlots") or 0),
        float(crowd.number(ad, "Cpus") or 0.0),
        amount("Memory", crowd.number(ad, "Memory") or 0),
        _drained(ad),
    )


def _drained(ad: ClassAd) -> str:
    if ad.held("Draining") is not True and crowd.text(ad, "State") != str(SlotState.DRAINED):
        return ""
    reason = shorten(crowd.text(ad, "DrainReason"))
    return f"an administrator takes it out of use{': ' if reason else ''}{reason}"


def owners_view(
    policy: OwnerPolicy, ad: ClassAd, job: ClassAd | None, condition: SlotCondition, now: float
) -> list[Finding]:
    """The effect of the owner's policy on a slot now, and the changes that would alter it.

    Args:
        ad: the slot's, with fresh facts.
        job: the ad of the job in it.
    """
    found: list[Finding] = [slot_finding(ad)]
    troubles = [fault.text for fault in judge(policy, ad, job, condition, now).faults]
    for name, effect in _BY_ACTIVITY.get(condition.activity, ()):
        found.append(_rule(name, policy.expressions[name], f"it would {effect}", ad, job, now))
    if condition.activity is Activity.IDLE and condition.state is not SlotState.DRAINED:
        found.append(start_rule(policy.expressions["START"], ad, now))
    return found + troubles_of(ad, troubles)


def from_the_ad(ad: ClassAd, now: float) -> list[Finding]:
    """The same as far as the advertised ad tells, for when the machine itself cannot be asked."""
    found: list[Finding] = [slot_finding(ad)]
    start = ad.get("Start")
    state = crowd.text(ad, "State")
    if start is not None and crowd.text(ad, "Activity") in ("", "Idle") and state != str(SlotState.DRAINED):
        found.append(start_rule(start, ad, now))
    return found + troubles_of(ad, [])


def troubles_of(ad: ClassAd, more: Sequence[str]) -> list[Finding]:
    """The troubles of the machine's policy, as its ad reports them."""
    said = [part.strip() for part in crowd.text(ad, "PolicyTrouble").split(";")]
    texts = dict.fromkeys(shorten(text) for text in (*more, *said) if text)
    return [Trouble(f"{text}: its administrator should mend it") for text in texts]


def start_rule(start: Expr, ad: ClassAd, now: float) -> Rule:
    """START without a job: which of its clauses keep everybody out."""
    value = evaluate(start, ad, None, now)
    if value is UNDEFINED:
        return Rule("START", start.text, "undefined", "it depends on the job")
    true = accepts(value)
    blocking = []
    for clause in split(start, "machine", ad.getter())[:CLAUSES]:
        expression = parse_expr(clause.text, "old")
        answer = evaluate(expression, ad, None, now)
        if not accepts(answer) and answer is not UNDEFINED:
            blocking.append(f"{shorten(bare(clause.text))} is not so{_facts(expression, ad, now)}")
    effect = "jobs may start" if true else "no job may start"
    return Rule("START", start.text, _value_text(value), effect, () if true else tuple(blocking))


def _rule(name: str, expression: Expr, effect: str, ad: ClassAd, job: ClassAd | None, now: float) -> Rule:
    value = evaluate(expression, ad, job, now)
    if expression.value is not None:
        return Rule(name, expression.text, f"always {_value_text(value)}", effect)
    seen = f"{shorten(expression.text)}{_facts(expression, ad, now)}"
    return Rule(name, expression.text, _value_text(value), effect, (seen,))


def _facts(expression: Expr, ad: ClassAd, now: float) -> str:
    """` (KeyboardIdle is 12)`: the machine's own values of what a clause looks at."""
    said = []
    entered = crowd.number(ad, "EnteredCurrentActivity")
    if entered is not None and {"CurrentTime", "EnteredCurrentActivity"} <= expression.references():
        said.append(f"so for {now - entered:.0f} s")
    for name in sorted(expression.references(), key=str.lower):
        value = ad.value(name, None)
        if name.lower() not in _VOLATILE and isinstance(value, (bool, int, float, str)):
            said.append(f"{name} is {amount(name, value)}")
    return f" ({', '.join(said[:FEW])})" if said else ""


def _value_text(value: object) -> str:
    if is_condition(value):
        return "true" if value else "false"
    return "undefined" if value is UNDEFINED else shorten(str(value).lower(), 40)


def demand(
    place: crowd.MatchableSlot, wishes: Sequence[IdleJobKind], now: float
) -> Piecemeal[tuple[Demand, list[IdleJobKind]]]:
    """The pool's idle jobs against one machine, and those of them that match it."""
    unmet: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    fitting: list[IdleJobKind] = []
    evaluated = 0
    theirs = clauses_of(place.whole)
    for wish in wishes:
        job, count = wish.ad, wish.count
        failed: set[str] = set()
        for clause in clauses_of(job):
            evaluated += 1
            if not accepts(evaluate(clause, job, place.whole, now)):
                failed.add(wording(clause.text, job).text)
        unmet.update(dict.fromkeys(failed, count))
        clauses: set[str] = set()
        for clause in theirs:
            evaluated += 1
            if not accepts(evaluate(clause, place.whole, job, now)):
                named = wording(clause.text, job)
                if not named.resource:
                    clauses.add(named.text)
                elif named.text not in failed:
                    failed.add(named.text)
                    unmet[named.text] += count
        refused.update(dict.fromkeys(clauses, count))
        if not failed and not clauses and job.get("Requirements") is not None and theirs:
            fitting.append(wish)
        if evaluated >= EVALUATIONS:
            evaluated = 0
            yield
    jobs, fit = (sum(wish.count for wish in some) for some in (wishes, fitting))
    return Demand(jobs, len(wishes), fit, shares(unmet), shares(refused)), fitting
