"""The larger request of a job that had too little: `retry_request_memory` and `retry_request_disk`.

The reader writes HTCondor's own form into the job's ad: `TransformOnEvict` names changes, and `TransformBody_NAME` has
each, lines of REQUIREMENTS, SET and EVALSET between separators. Only the requests themselves, and where a list of them
has come to, are changed by it here: an ad may come from a client of any kind.
"""

from __future__ import annotations

import re
from typing import Any

from pool.classad import ClassAd, ParseError, evaluate, parse_expr
from pool.jobs.reasons import DISK_EXCEEDED, MEMORY_EXCEEDED, Hold

SEPARATOR = "\x1e"
#: Which request is about which subcode.
_REQUESTS = {MEMORY_EXCEEDED: "RequestMemory", DISK_EXCEEDED: "RequestDisk"}
_LINE = re.compile(r"(?P<verb>REQUIREMENTS|SET|EVALSET)\s+(?P<rest>.+)", re.IGNORECASE | re.DOTALL)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\s+(?P<value>.+)", re.DOTALL)
#: Changes, and lines of one, that are looked at.
MOST = 20


def more_for(ad: ClassAd, subcode: int, now: float) -> dict[str, Any]:
    """The changes of a job that was over its memory or disk; nothing where it does not get more.

    Args:
        ad: the job's, the caller's own: it is added to.
        subcode: which of them it was.
    """
    attribute = _REQUESTS.get(subcode)
    names = ad.value("TransformOnEvict", None)
    if attribute is None or not isinstance(names, str):
        return {}
    before = ad.value(attribute, None, now=now)
    ad["VacateReasonCode"], ad["VacateReasonSubCode"] = int(Hold.OUT_OF_RESOURCES), subcode
    allowed = {attribute.lower(): attribute, f"retry{attribute}index".lower(): f"Retry{attribute}Index"}
    changes: dict[str, Any] = {}
    for name in names.split()[:MOST]:
        body = ad.value(f"TransformBody_{name}", None)
        if isinstance(body, str):
            changes |= _transformed(ad, body, allowed, now)
    after = changes.get(attribute)
    grows = isinstance(after, (int, float)) and (not isinstance(before, (int, float)) or after > before)
    return changes if grows else {}


def _transformed(ad: ClassAd, body: str, allowed: dict[str, str], now: float) -> dict[str, Any]:
    """The ad after one change; nothing where the change is not for this case, or cannot be read."""
    changes: dict[str, Any] = {}
    try:
        for line in body.split(SEPARATOR)[:MOST]:
            found = _LINE.fullmatch(line.strip())
            if found is None:
                continue
            rest = found["rest"]
            if found["verb"].upper() == "REQUIREMENTS":
                if evaluate(parse_expr(rest, syntax="old"), ad, None, now) is not True:
                    return {}
                continue
            assignment = _ASSIGNMENT.fullmatch(rest)
            if assignment is None or (name := allowed.get(assignment["name"].lower())) is None:
                continue
            value = evaluate(parse_expr(assignment["value"], syntax="old"), ad, None, now)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                ad[name] = changes[name] = int(value)
    except ParseError:
        return {}
    return changes
