"""Checks the attributes that a client gives to the jobs it queues, before the queue has them.

Functions over ads in wire form; nothing is written here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pool.classad import ClassAd, ParseError, parse_expr
from pool.errors import PoolError
from pool.jobs.activation import JAVA
from pool.jobs.gangs import NODE_MARKS, PARTS, GangParts, attributes_of, may_be_own, parts_of
from pool.jobs.pipes.model import processes_of
from pool.jobs.privacy import canonical
from pool.policy.flock.private import check_job
from pool.policy.queue import HELD, LOCAL_UNIVERSES, WORKFLOW, Wire

#: Attributes in one ad.
MOST_ATTRIBUTES = 5000
#: Characters of the name of an attribute: names are remembered.
LONGEST_NAME = 1000
#: Attributes that only the schedd sets (lower case). JobStatus may be asked for once, as held.
OWN_NAMES = frozenset(
    {
        *("owner", "user", "qdate", "clusterid", "procid", "remotehost", "numjobstarts", "globaljobid"),
        WORKFLOW.lower(),
        *("stageinstart", "stageinfinish", "stageoutfinish"),
    }
)
#: Universes, by HTCondor's numbers, whose jobs are started.
VANILLA = 5
STARTED = frozenset({VANILLA, JAVA, *NODE_MARKS}) | LOCAL_UNIVERSES
#: Attributes of a job that is to be held from the beginning; they are true only until the job is released.
HOLDING = ("HoldReason", "HoldReasonCode", "HoldReasonSubCode")
SUBMITTED_ON_HOLD: Wire = {"HoldReason": "submitted on hold at user's request", "HoldReasonCode": 15}


def clean(ad: Any) -> Wire | None:
    """The attributes of an ad that a client may set; those that only the schedd sets are left out.

    Raises:
        PoolError: it is no ad at all.
    """
    if ad is None:
        return None
    if not isinstance(ad, dict) or len(ad) > MOST_ATTRIBUTES:
        raise PoolError("cannot queue: this is no job ad", hint=f"a mapping of at most {MOST_ATTRIBUTES} names")
    kept: Wire = {}
    for given, value in ad.items():
        if isinstance(given, str) and len(given) > LONGEST_NAME:
            raise PoolError(
                f"cannot queue: the name of an attribute has {len(given):,} characters",
                hint=f"{LONGEST_NAME:,} at most: {given[:40]}...",
            )
        name = _kept_name(given)
        if name is None:
            continue
        if isinstance(value, list):
            _check_expression(name, value)
        kept[name] = value
    if PARTS in kept:
        _check_parts(kept)
    return kept


def _check_parts(ad: Wire) -> None:
    """The attributes of a job's parts, which replace the job's own, are checked in the same way. The list itself is
    kept as it is now: an expression in it could be another list at the next look."""
    try:
        parts = parts_of(ClassAd.from_wire({PARTS: ad[PARTS]}))
    except PoolError as error:
        raise PoolError(f"cannot queue: {error.message}", hint=error.hint) from error
    for part in parts.kinds:
        for name, value in part.own.items():
            if not may_be_own(name):
                raise PoolError(f"cannot queue: {name} is not for a part of a job to say")
            if isinstance(value, list):
                _check_expression(name, value)
            elif not isinstance(value, (str, int, float)):
                raise PoolError(f"cannot queue: {name} of a part is neither a value nor an expression")
    _check_numbers(ad, parts)
    ad |= {PARTS: attributes_of(parts.kinds, apart=False)[PARTS]}


def _check_numbers(ad: Wire, parts: GangParts) -> None:
    """The number of parts, and the processes of a pipe job's parts, are those of the job."""
    if "Processes" not in ad:
        for name in ("MinHosts", "MaxHosts"):  # in a pipe job they are of the whole job, which is one
            if ad.get(name, len(parts)) != len(parts):
                raise PoolError(f"cannot queue: {name} is {str(ad[name])[:40]!r}, and {PARTS} has {len(parts)} parts")
        if named := next((one for part in parts.kinds for one in part.processes), None):
            raise PoolError(f"cannot queue: a part has the process {named[:40]!r}, and the job has none")
        return
    known = sorted(process.name for process in processes_of(ClassAd.from_wire({"Processes": ad["Processes"]})))
    having = sorted(one for part in parts for one in part.processes)
    if known != having or not all(part.processes for part in parts.kinds):
        raise PoolError(f"cannot queue: the parts in {PARTS} do not have each process of the job once")


@lru_cache(MOST_ATTRIBUTES)
def _kept_name(name: Any) -> str | None:
    """The name under which a client's attribute is kept; None where it is not its to say."""
    if not isinstance(name, str) or name[:1] in ("", "_") or name.lower() in OWN_NAMES:
        return None
    return canonical(name)


def check_kind(ad: Wire) -> None:
    """Refuse a job of a kind that is not started here: a client that reads no description may ask for any.

    Raises:
        PoolError: its universe, or other pools in which it cannot run.
    """
    universe = ad.get("JobUniverse", VANILLA)
    if universe not in STARTED:
        hint = "docs/submit.md has what it starts"
        raise PoolError(f"cannot queue: this pool starts no jobs of universe {universe}", hint=hint)
    if universe in NODE_MARKS and PARTS not in ad:
        hint = "submit it from a description file"
        raise PoolError(f"cannot queue: a parallel job has no nodes ({PARTS})", hint=hint)
    check_job(ad)


def holding(ad: Wire) -> tuple[bool, Wire]:
    """Whether a cluster's jobs are to be held from the beginning, and what is said of that; taken out of its ad."""
    whole = ad.pop("JobStatus", None) == HELD
    reason = {name: ad.pop(name) for name in HOLDING if name in ad}
    return whole, reason or dict(SUBMITTED_ON_HOLD)


def split_held(deltas: list[Wire | None], whole: bool, reason: Wire) -> dict[int, Wire]:
    """Of some jobs those that are to be held, by their places, with their reasons; taken out of their differences.

    A cluster may have both kinds: `hold` can differ from process to process.

    Args:
        whole, reason: what `holding` said of their cluster.
    """
    held: dict[int, Wire] = {}
    for place, delta in enumerate(deltas):
        asked = delta.pop("JobStatus", None) if delta else None
        own = {name: delta.pop(name) for name in HOLDING if name in delta} if delta else {}
        if asked == HELD or (whole and asked is None):
            held[place] = reason | own
    return held


def _check_expression(name: str, value: list[Any]) -> None:
    if len(value) != 1 or not isinstance(value[0], str):
        raise PoolError(f"cannot queue: {name} is neither a value nor an expression")
    try:
        parse_expr(value[0], syntax="old")
    except ParseError as error:
        raise PoolError(f"cannot queue: {name} is no expression: {error}") from error
