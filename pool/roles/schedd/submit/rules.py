"""The administrator's rules for jobs: which are let into the queue, and which in it are held, released or removed.

SUBMIT_REQUIREMENTS names expressions that a job's ad must make true; SYSTEM_PERIODIC_HOLD and its kin are looked at
with the jobs' own periodic expressions, and come after those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pool.classad import ClassAd, Expr, ParseError, evaluate, parse_expr
from pool.config import Settings
from pool.config.macros import Replacer
from pool.errors import PoolError
from pool.jobs.reasons import Hold
from pool.policy.exits import STAY, Decision, ExitVerdict
from pool.policy.queue import JobQueue, Wire
from pool.policy.transforms import Transform, read_transform
from pool.roles.schedd.core.intake import ClusterIntake
from pool.roles.schedd.core.validation import OWN_NAMES, check_kind

#: Jobs whose ads are looked at before others on the loop have their turn.
SOME = 50
_PERIODIC = (
    ("SYSTEM_PERIODIC_RELEASE", ExitVerdict.RELEASE),
    ("SYSTEM_PERIODIC_HOLD", ExitVerdict.HOLD),
    ("SYSTEM_PERIODIC_REMOVE", ExitVerdict.REMOVE),
    ("SYSTEM_PERIODIC_VACATE", ExitVerdict.VACATE),
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """An expression that a job's ad must make true to be let in; `reason` tells its owner why it was not."""

    name: str
    expression: Expr
    reason: Expr | None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one schedd.

    Attributes:
        periodic: verdicts with their expressions; those that are plainly false are left out.
        transforms: what is changed in each job that comes in, in this order, before it is looked at.
        most, most_of_one: jobs in the queue, and of one owner; 0 for any number.
    """

    periodic: tuple[tuple[str, ExitVerdict, Expr], ...] = ()
    requirements: tuple[Requirement, ...] = ()
    transforms: tuple[Transform, ...] = ()
    most: int = 0
    most_of_one: int = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> Rules:
        """The rules that the settings say.

        Raises:
            PoolError: one is no expression; the setting is named.
        """
        periodic = [(name, verdict, _read(name, settings.text)) for name, verdict in _PERIODIC]
        requirements = []
        for name in settings.text("SUBMIT_REQUIREMENTS").replace(",", " ").split():
            setting = f"SUBMIT_REQUIREMENT_{name}"
            reason = _read(f"{setting}_REASON", settings.text) if settings.text(f"{setting}_REASON") else None
            requirements.append(Requirement(name, _read(setting, settings.text), reason))
        return cls(
            tuple(one for one in periodic if one[2].text.lower() not in ("false", "0")),
            tuple(requirements),
            tuple(_transforms(settings)),
            int(settings.number("MAX_JOBS_SUBMITTED")),
            int(settings.number("MAX_JOBS_PER_OWNER")),
        )

    def check_room(self, queue: JobQueue, owner: str, count: int) -> None:
        """Refuse jobs for which there is no room.

        Raises:
            PoolError: with the setting that bounds them.
        """
        of_one = sum(queue.counts.get(owner, {}).values())
        for setting, most, there, whose in (
            ("MAX_JOBS_PER_OWNER", self.most_of_one, of_one, f"of {owner} "),
            ("MAX_JOBS_SUBMITTED", self.most, len(queue) if self.most else 0, ""),
        ):
            if most and there + count > most:
                raise PoolError(
                    f"cannot queue {count} jobs: {there} {whose}are in the queue, and {setting} = {most}",
                    hint="submit again when some have ended",
                    retry=True,
                )

    async def transform_and_check(self, intake: ClusterIntake, now: float) -> None:
        """Transform the jobs of a submit, then refuse what the administrator does not let in. Raises PoolError."""
        before, shared = intake.ad, self._transformed(intake.ad, now)
        if self.transforms:
            check_kind(shared)
            if self.requirements:
                self.check(ClassAd.from_wire(shared), now)
        looked_at = self.requirements or self.transforms
        for place, delta in enumerate((intake.deltas or ()) if looked_at else ()):
            if not place % SOME:
                await asyncio.sleep(0)
            if not delta:
                continue
            whole = self._transformed({**before, **delta}, now)
            if self.transforms:
                intake.replace(place, _difference(whole, shared))
            if self.requirements:
                self.check(ClassAd.from_wire(whole), now)
        intake.ad = shared

    def _transformed(self, ad: Wire, now: float) -> Wire:
        for transform in self.transforms:
            ad = transform.apply(ad, now)
        return ad

    def check(self, ad: ClassAd, now: float) -> None:
        """Refuse a job that does not meet the administrator's requirements.

        Raises:
            PoolError: with the requirement, and its reason where it has one.
        """
        for requirement in self.requirements:
            if evaluate(requirement.expression, ad, None, now) is True:
                continue
            said = evaluate(requirement.reason, ad, None, now) if requirement.reason is not None else None
            why = said if isinstance(said, str) else f"it must make this true: {requirement.expression.text}"
            hint = "a requirement of this schedd's administrator"
            raise PoolError(f"cannot queue: {requirement.name}: {why}", hint=hint)

    def judge(self, ad: ClassAd, *, held: bool, running: bool, now: float) -> Decision:
        """The decision about a job that is in the queue."""
        for name, verdict, expression in self.periodic:
            fits = {ExitVerdict.RELEASE: held, ExitVerdict.HOLD: not held, ExitVerdict.VACATE: running}.get(
                verdict, True
            )
            if not fits or not _true(evaluate(expression, ad, None, now)):
                continue
            return Decision(verdict, f"the administrator's {name} became true", int(Hold.SYSTEM_POLICY))
        return STAY


def _transforms(settings: Settings) -> Iterator[Transform]:
    def expand(line: str) -> str:
        def lookup(name: str) -> str | None:
            return f"$({name})" if name.upper().startswith("MY.") else settings.text(name)

        return Replacer(lookup, settings.environ).replace(line)

    for name in settings.text("JOB_TRANSFORM_NAMES").replace(",", " ").split():
        text = settings.raw(f"JOB_TRANSFORM_{name}")
        if not text:
            raise PoolError(f"JOB_TRANSFORM_NAMES has {name}, and there is no JOB_TRANSFORM_{name}")
        yield read_transform(name, text, OWN_NAMES, expand)


def _difference(whole: Wire, shared: Wire) -> Wire:
    """The attributes of a job's ad beyond the shared one; those that only the shared one has are undefined in it."""
    own = {name: value for name, value in whole.items() if name not in shared or shared[name] != value}
    return own | {name: ["undefined"] for name in shared if name not in whole}


def _read(name: str, text: Callable[[str], str]) -> Expr:
    try:
        return parse_expr(text(name), syntax="old")
    except ParseError as error:
        raise PoolError(f"{name} is no expression: {error}") from error


def _true(value: object) -> bool:
    return isinstance(value, (bool, int, float)) and bool(value)
