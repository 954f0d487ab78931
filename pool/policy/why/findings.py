"""Why a job waits or a machine rests: typed findings, which travel between nodes and are put into words elsewhere.

An *explanation* is a list of findings in no particular order. Each says one thing that a role knows for sure: the
schedd about its queue, the negotiator about machines and the order of users, the startd about its owner's policy.
`words` orders them and makes lines of them; programs look at their kinds and fields (`poolnode why --json`).

Nothing here finds anything out: that is `job`'s and `machine`'s. Times are wall seconds, lengths of time seconds.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from pool.policy.why.other_pools import LeftMachine, OtherPool


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value and how many have it: `LINUX` on 40 machines, `bob` on 3."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class JobCondition:
    """One condition of a job's, looked at against every machine.

    Attributes:
        text: as its user wrote it: `request_memory 64 GB`, `OpSys == "WINDOWS"`.
        rules_out: machines for which it does not hold.
        alone: machines that would match but for it.
        attribute: the machines' attribute that it asks for; empty when there is none or more than one.
        has: what machines have there, the commonest first; at most a few.
        silent: machines whose ads do not have the attribute.
        best: the value that comes nearest (`32 GB`), where values have an order.
        best_fitting: the same among machines that meet everything else, where that is another.
        want: which end is near: `largest` or `smallest`; empty without an order.
    """

    text: str
    rules_out: int = 0
    alone: int = 0
    attribute: str = ""
    has: tuple[ValueCount, ...] = ()
    silent: int = 0
    best: str = ""
    best_fitting: str = ""
    want: str = ""


@dataclass(frozen=True, slots=True)
class RefusingClause:
    """One clause by which machines refuse a job.

    Attributes:
        text: the clause of the machines' own requirements.
        count: machines where it does not hold.
        names: a few of them.
        states: what state they are in.
    """

    text: str
    count: int = 0
    names: tuple[str, ...] = ()
    states: tuple[ValueCount, ...] = ()


# --- what the schedd knows


@dataclass(frozen=True, slots=True)
class Queued:
    """The job and its place in its owner's own order (PRIO, TS 8.2).

    Attributes:
        ahead: idle jobs of the same owner that come first.
        idle: idle jobs of the owner, this one included.
        alike: idle jobs that no expression can tell from this one, this one included.
    """

    job: str
    owner: str
    status: int
    since: float = 0.0
    submitted: float = 0.0
    starts: int = 0
    ahead: int = 0
    idle: int = 0
    alike: int = 0


@dataclass(frozen=True, slots=True)
class HeldFinding:
    """It is held, and stays so until it is released."""

    reason: str
    code: int = 0
    subcode: int = 0
    hint: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """It has left the queue.

    Attributes:
        removed: taken out, rather than ended by itself.
        code: exit status, or the signal's number when `signalled`.
        apart: it had a file tree of its own, without the machine's other directories.
    """

    removed: bool
    when: float = 0.0
    code: int | None = None
    signalled: bool = False
    reason: str = ""
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """It has a machine.

    Attributes:
        phase: `starting`, `running`, `suspended`, `sending output` or `stopping`.
        since: when this run began.
        wish: what will become of it when it has stopped, where somebody asked for that.
        because: why it is suspended.
        files: how it reaches its owner's files, where it was to be shown them, and why so.
        others: of a job on several machines the slots beside `slot`, a few of them; more: how many are not among them.
        mpi: it is of ranks that may wait for each other: its machines know which (`RanksFinding`).
        late: of a job on several machines the slots, a few of them, whose parts are not ready while others wait for
            them.
        network: it has a network of its own with packets that its machines carry, and they know more
            (`NetworkFinding`).
        network_why: why its network is not the one that GANG_NETWORK names.
    """

    slot: str
    phase: str
    since: float = 0.0
    wish: str = ""
    because: str = ""
    files: str = ""
    others: tuple[str, ...] = ()
    more: int = 0
    mpi: bool = False
    late: tuple[str, ...] = ()
    network: bool = False
    network_why: str = ""


@dataclass(frozen=True, slots=True)
class NetworkFinding:
    """The packets that a part of a running job has sent in the job's network, and the machines it has no link to.

    Attributes:
        slot: where the part runs.
        words: `has sent 5.2 MB to rank1 (1.1 MB/s); no link to donder (for 12 s)`.
    """

    slot: str
    words: str


@dataclass(frozen=True, slots=True)
class RanksFinding:
    """Ranks of a running MPI job wait for others.

    Attributes:
        slot: where these ranks run.
        words: `rank 0 waits for rank 1, which has not called MPI_Init`.
    """

    slot: str
    words: str


@dataclass(frozen=True, slots=True)
class Unsavable:
    """It runs, and what it has done is lost with its machine.

    Attributes:
        why: what of it cannot be saved: `descriptor 5 of process 2 is a TCP connection to 192.0.2.7:5432`.
    """

    why: str


@dataclass(frozen=True, slots=True)
class UnreachableFinding:
    """Its machine cannot be reached; until the claim's lease has ended it may run there, so nowhere else."""

    slot: str
    left: float


@dataclass(frozen=True, slots=True)
class ClaimingFinding:
    """Matches for its owner's jobs that are being claimed this moment.

    Attributes:
        freed: those that somebody else's job leaves first.
    """

    slots: int
    freed: int = 0


@dataclass(frozen=True, slots=True)
class GangFinding:
    """It needs several slots at the same time.

    Attributes:
        held: how many of its `parts` have one.
        missing: the processes of those that have none, part by part.
        pause: seconds until it asks again, when it has given back what it had.
    """

    parts: int
    held: int
    missing: tuple[str, ...] = ()
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class DedicatedFinding:
    """It waits for machines of a dedicated scheduler.

    Attributes:
        scheduler: its name.
        why: a clause; empty where the expected start says enough.
        expected: a sentence on when it starts and how sure that is; empty where nothing is known.
        start, earliest, latest: wall times of that; None where they are not known.
        waits_for: jobs or a reservation whose end lets it start.
    """

    scheduler: str
    why: str = ""
    expected: str = ""
    start: float | None = None
    earliest: float | None = None
    latest: float | None = None
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """Starts of it failed; after so many it is held.

    Attributes:
        pause: seconds until a machine is asked for again, where none is now.
    """

    count: int
    most: int
    slot: str = ""
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """Its checkpoints lie where they cannot be reached now, and it waits for them.

    Attributes:
        where: CHECKPOINT_SERVER.
        why: what was said when it was tried last.
    """

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """It is to start at a moment of its own.

    Attributes:
        moment: wall time.
        asks: wall time from which a machine is looked for.
    """

    moment: float
    asks: float


@dataclass(frozen=True, slots=True)
class NotItsTurn:
    """Its cluster says how many of its jobs are asked for at once, and the turn of this one has not come.

    Attributes:
        idle, whole: max_idle and max_materialize; None where the cluster does not say.
        delay: next_job_start_delay, seconds. `paused`: the pause after a start is not over.
    """

    idle: int | None = None
    whole: int | None = None
    delay: float = 0.0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class BesideSchedd:
    """It runs on the submit machine, where as many such jobs run as may.

    Attributes:
        most: MAX_LOCAL_JOBS.
    """

    most: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The negotiator's last answer about jobs like this one."""

    reason: str
    when: float


# --- what the negotiator knows


@dataclass(frozen=True, slots=True)
class Machines:
    """The pool: slots that jobs can be matched with (a partitionable slot counts once), by state."""

    machines: int
    slots: int
    states: tuple[ValueCount, ...] = ()


@dataclass(frozen=True, slots=True)
class TooFew:
    """A job of several parts needs more at the same time than the pool has, busy or not.

    Attributes:
        needs: how many machines, or slots.
        suit: how many of the pool's meet its conditions; of a partitionable slot as many as could be carved.
        apart: each part has to be on a machine of its own, so that machines count; otherwise slots.
    """

    needs: int
    suit: int
    apart: bool


@dataclass(frozen=True, slots=True)
class Unmet:
    """Machines that the job's own requirements rule out, and by which conditions."""

    count: int
    conditions: tuple[JobCondition, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unshown:
    """Machines that cannot show a job its owner's files, as it asks (`remote_io = on`).

    Attributes:
        reasons: what they lack, in their words.
    """

    count: int
    reasons: tuple[ValueCount, ...] = ()


@dataclass(frozen=True, slots=True)
class NoNetwork:
    """Machines that give a job no network of its own, as it asks (`job_network = private`).

    Attributes:
        out: they give it one without a way out, and it asks for `private+out`.
        reasons: why, in their words.
    """

    count: int
    reasons: tuple[ValueCount, ...] = ()
    out: bool = False


@dataclass(frozen=True, slots=True)
class RefusedFinding:
    """Machines that the job would take and that refuse it."""

    count: int
    clauses: tuple[RefusingClause, ...] = ()


@dataclass(frozen=True, slots=True)
class Busy:
    """Machines that match and serve somebody.

    Attributes:
        users: whom they serve.
        kept: why they are not taken from them.
    """

    count: int
    users: tuple[ValueCount, ...] = ()
    kept: tuple[ValueCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Unusable:
    """Machines that match and can be given to nobody now: their owner has them, they are out of use, ..."""

    count: int
    states: tuple[ValueCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Free:
    """Machines that match and are free."""

    count: int


@dataclass(frozen=True, slots=True)
class Nearest:
    """The fewest conditions whose change lets machines in.

    Attributes:
        changes: the conditions.
        theirs: clauses of the machines' that would have to change too; empty where the user can do it alone.
        lets_in: how many machines.
    """

    changes: tuple[str, ...]
    lets_in: int
    theirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnFinding:
    """Where the user stands in the order of priorities; place 1 is served first.

    Attributes:
        ahead: who comes first, best first; at most a few.
        running: slots the user has.
    """

    user: str
    place: int
    of: int
    priority: float | None = None
    ahead: tuple[str, ...] = ()
    running: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """A concurrency limit that the job counts against.

    Attributes:
        wants: how much of it this job takes.
        binds: no more than `most` are given out, so that this job does not fit in.
    """

    name: str
    used: float
    most: float
    wants: float = 1.0
    binds: bool = False


@dataclass(frozen=True, slots=True)
class QuotaFinding:
    """The share of the pool that the user's group has."""

    group: str
    used: float
    quota: float
    binds: bool = False


@dataclass(frozen=True, slots=True)
class Cycle:
    """The last negotiation.

    Attributes:
        asked: whether the job was asked for in it.
        reason: why it was rejected; empty where it was not.
    """

    when: float
    asked: bool = False
    matched: int = 0
    reason: str = ""
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """Roughly how long it will take; None where nobody can tell.

    Attributes:
        basis: what the estimate rests on, or why there is none.
        most: it will not take longer.
        never: as the pool and the job are, it will not happen.
    """

    seconds: float | None
    basis: str
    most: bool = False
    never: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """Somebody who should have been asked does not answer, or is not there."""

    who: str
    why: str = ""


# --- what is known of a machine


@dataclass(frozen=True, slots=True)
class SlotFinding:
    """A slot as it is.

    Attributes:
        user, job: whom it serves.
        since: when it came into its activity.
        drained: why an administrator takes it out of use; empty when nobody does.
        parts: slots that are carved out of it.
        cpus, memory: what is left of it.
    """

    name: str
    state: str
    activity: str
    since: float = 0.0
    user: str = ""
    job: str = ""
    parts: int = 0
    cpus: float = 0.0
    memory: str = ""
    drained: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One of the owner's expressions and what it comes to now.

    Attributes:
        effect: what it would do if it were true: `starts nothing`, `suspends the job`, ...
        clauses: those of its clauses that make it false (of START), or that would have to become true.
    """

    name: str
    text: str
    value: str
    effect: str = ""
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something of the machine's configuration that its administrator should mend."""

    text: str


@dataclass(frozen=True, slots=True)
class Demand:
    """The idle jobs of the pool against one machine.

    Attributes:
        jobs, clusters: idle jobs, and kinds of them that were asked for in the last cycle.
        fit: jobs that match the machine.
        unmet: the jobs' conditions that the machine does not meet, by how many jobs have them.
        refused: the machine's clauses that keep jobs out.
        better: jobs that match and that may take it from its present one because the machine prefers them.
        guests: jobs of this pool that match and that a job of another pool leaves it for.
        prior: jobs that match and that may take it because their users stand better.
    """

    jobs: int
    clusters: int
    fit: int = 0
    unmet: tuple[ValueCount, ...] = ()
    refused: tuple[ValueCount, ...] = ()
    better: int = 0
    prior: int = 0
    guests: int = 0


Finding = (
    Queued
    | HeldFinding
    | Ended
    | Running
    | UnreachableFinding
    | Unsavable
    | RanksFinding
    | NetworkFinding
    | ClaimingFinding
    | GangFinding
    | DedicatedFinding
    | FailedStarts
    | LeftMachine
    | OutOfReach
    | Deferred
    | NotItsTurn
    | BesideSchedd
    | Rejected
    | Machines
    | TooFew
    | Unmet
    | Unshown
    | NoNetwork
    | RefusedFinding
    | Busy
    | Unusable
    | Free
    | Nearest
    | TurnFinding
    | Limit
    | QuotaFinding
    | Cycle
    | Outlook
    | OtherPool
    | Silent
    | SlotFinding
    | Rule
    | Trouble
    | Demand
)


def kind_of(finding: type[Finding]) -> str:
    """The word for a finding over the wire and in JSON: `Busy` for Busy, `Held` for HeldFinding."""
    return finding.__name__.removesuffix("Finding")


KINDS: dict[str, type[Finding]] = {kind_of(finding): finding for finding in get_args(Finding)}


# --- over the wire


def to_wire(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """As plain values: each a mapping with its `kind` and its fields."""
    return [{"kind": kind_of(type(finding)), **_plain(finding)} for finding in findings]


def _plain(thing: Any) -> Any:
    if is_dataclass(thing):
        return {field.name: _plain(getattr(thing, field.name)) for field in fields(thing)}
    if isinstance(thing, tuple):
        return [_plain(item) for item in thing]
    return thing


def from_wire(items: Iterable[Any]) -> list[Finding]:
    """The reverse of `to_wire`. A newer program's unknown kinds and fields are left out."""
    found: list[Finding] = []
    for item in items:
        kind = KINDS.get(str(item.get("kind"))) if isinstance(item, Mapping) else None
        if kind is None:
            continue
        try:
            found.append(_built(kind, item))
        except (TypeError, ValueError):
            continue
    return found


_hints: dict[type[Any], dict[str, Any]] = {}


def _built(kind: type[Any], item: Mapping[str, Any]) -> Any:
    hints = _hints.get(kind)
    if hints is None:
        hints = _hints[kind] = get_type_hints(kind)
    return kind(**{name: _read(hint, item[name]) for name, hint in hints.items() if name in item})


def _read(hint: Any, value: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        hint = next(one for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], item) for item in value)
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise TypeError(f"no {hint}")
        return _built(hint, value)  # type: ignore[arg-type]
    return hint(value)
