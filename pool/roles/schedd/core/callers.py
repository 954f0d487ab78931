"""The user that a call to the schedd acts for, the user that looks, and the ways to choose jobs."""

from __future__ import annotations

from typing import Any

from pool.errors import PoolError
from pool.wire import Call, Right
from pool.wire.errors import CallRefused
from pool.wire.parameter_checks import JOB_IDS, TEXTS, Takes, optional

#: How jobs are chosen, in listings and by what changes them.
CHOICE: Takes = {
    "ids": optional(JOB_IDS),
    "constraint": str | None,
    "owner": str | None,
    "attributes": optional(TEXTS),
    "limit": int | None,
}


def viewer_of(call: Call) -> str | None:
    """The user that looks, as `pool.jobs.privacy.may_see` takes it."""
    if Right.ADMINISTER in call.identity.rights:
        return None
    return call.identity.name if call.identity.kind == "user" else ""


def owner_of(call: Call, params: dict[str, Any]) -> str:
    """The user a call acts for: the authenticated one; an administrator may name another.

    A node is nobody's user, whatever its name: it chose that itself when it joined.
    """
    wish = params.get("owner")
    if call.identity.kind != "user" and Right.ADMINISTER not in call.identity.rights:
        raise CallRefused(f"{call.identity} is no user and has no jobs", hint="call as a user, with a token")
    if wish and wish != call.identity.name:
        if Right.ADMINISTER not in call.identity.rights:
            raise PoolError(f"{call.identity.name} may not act for {wish}")
        return str(wish)
    return call.identity.name
