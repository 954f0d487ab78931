"""Checks changes to attributes of a queued job (`poolnode qedit`), and reads the new values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.crontab import CRONTAB
from pool.jobs.description.expressions import ExpressionError, wire_of
from pool.jobs.gangs import (
    NODE_MARKS,
    PARALLEL,
    PARTS,
    POLICIES,
    POLICY,
    holders_of,
    is_parallel,
    parts_of,
)
from pool.jobs.pipes.model import ON_FAILURE
from pool.jobs.privacy import canonical
from pool.policy.nodes import ranges
from pool.roles.schedd.core.validation import OWN_NAMES

#: Changes that one call may ask for, and characters of a value.
MOST_CHANGES, LONGEST = 100, 1 << 20
#: Attributes that the schedd itself keeps, or that say what a job is, in lower case. The owner may set the rest.
IMMUTABLE = OWN_NAMES | frozenset(
    {
        *("jobstatus", "enteredcurrentstatus", "jobuniverse", "mytype", "targettype", "completiondate"),
        *("holdreason", "holdreasoncode", "holdreasonsubcode", "numckpts", "numrestarts", "numjobcompletions"),
        *("numsystemholds", "exitcode", "exitsignal", "exitbysignal", "exitstatus", "remotewallclocktime"),
        *("remoteusercpu", "remotesyscpu", "localusercpu", "localsyscpu", "committedtime", "worklost"),
        *("jobstartdate", "jobcurrentstartdate", "jobcurrentstartexecutingdate", "lastremotehost", "bytessent"),
        *("bytesrecvd", "imagesize", "residentsetsize", "acctgroup", "acctgroupuser", "accountinggroup"),
        *("gangparts", "gangapart", "minhosts", "maxhosts", "processes", "pipes", *(name.lower() for name in CRONTAB)),
    }
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def changes_of(attributes: Any) -> dict[str, Any]:
    """The changes to a job, in wire form, from names and the texts of expressions.

    Raises:
        PoolError: one is not the owner's to change, or its value is no expression; the others are not changed either.
    """
    if not isinstance(attributes, Mapping) or not 0 < len(attributes) <= MOST_CHANGES:
        raise PoolError("qedit needs attributes and their new values", hint="poolnode qedit 12.3 RequestMemory=2048")
    return {canonical(_checked(name)): _value(name, text) for name, text in attributes.items()}


def own_of_parts(ad: ClassAd, changes: Mapping[str, Any]) -> str | None:
    """Why a change to a job on several machines has no effect, or a bad one; None where there is no reason.

    Args:
        ad: the job's, before the change.
        changes: in wire form.
    """
    if ad.get(PARTS) is None:
        return None
    parts, numbered = parts_of(ad), is_parallel(ad)
    for name, value in changes.items():
        if holders := holders_of(parts, name):
            each = f"node {ranges(holders)}" if numbered else f"part {ranges(holders)}"
            return f"{each} has its own {name}, so that the job's is not used there: submit the job again instead"
        shared = isinstance(value, str) and value not in ("", "/dev/null")
        marked = isinstance(value, str) and any(mark in value for mark in NODE_MARKS.values())
        if numbered and len(parts) > 1 and name in ("Out", "Err") and shared and not marked:
            mark = NODE_MARKS.get(ad.value("JobUniverse", PARALLEL), NODE_MARKS[PARALLEL])
            return f"{len(parts)} nodes would write the one file {value}: write {mark} where the node's number belongs"
        if name == POLICY and str(value).upper() not in POLICIES:
            return f"{POLICY} is one of {', '.join(POLICIES)}"
        if name == "OnProcessFailure" and value not in ON_FAILURE:
            return f"OnProcessFailure is one of {', '.join(ON_FAILURE)}"
    return None


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PoolError(f"{str(name)[:80]!r} is no name of an attribute")
    if name.lower() in IMMUTABLE:
        raise PoolError(f"{name} cannot be changed: it says what the job is, or what has happened to it")
    return name


def _value(name: str, text: Any) -> Any:
    if not isinstance(text, str) or len(text) > LONGEST:
        raise PoolError(f"the value of {name} is no expression")
    try:
        return wire_of(text)
    except ExpressionError as error:
        hint = 'a text as a value needs double quotes: NAME="..."'
        raise PoolError(f"the value of {name} is no expression: {error}", hint=hint) from error
