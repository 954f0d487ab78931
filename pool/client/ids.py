"""Ids of jobs as programs write them: 12, "12", "12.3", (12,), (12, 3), or a handle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pool.errors import PoolError

_ID = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?")


def job_id(given: Any) -> tuple[int, ...]:
    """(cluster,) or (cluster, process).

    Raises:
        PoolError: it is no id; the message names it.
    """
    named = getattr(given, "ids", None)
    if isinstance(named, list) and len(named) == 1:  # a handle
        given = named[0]
    if isinstance(given, str) and (found := _ID.fullmatch(given.strip())) is not None:
        return tuple(int(part) for part in found.groups() if part is not None)
    if type(given) is int and given >= 0:
        return (given,)
    whole = isinstance(given, (list, tuple)) and all(type(part) is int and part >= 0 for part in given)
    if whole and len(given) in (1, 2):
        return tuple(given)
    raise PoolError(f"{given!r} is no job id", hint="write 12 or 12.3: a cluster, or a job of it")


def job_ids(given: Any) -> list[tuple[int, ...]]:
    """Those of several.

    Raises:
        PoolError: one is no id, or it is no list.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise PoolError(f"{given!r} is no list of job ids", hint="write [12, '12.3']")
    return [job_id(one) for one in given]


def one_job(given: Any) -> tuple[int, int]:
    """(cluster, process).

    Raises:
        PoolError: it is no id of one job.
    """
    found = job_id(given)
    if len(found) != 2:
        raise PoolError(f"{given!r} is a cluster, not one job of it", hint=f"write {found[0]}.0 for its first job")
    return found[0], found[1]
