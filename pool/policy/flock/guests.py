"""Jobs of other pools on our machines, and which of them leave when our own jobs need the machine (EV 4.2: idle only).

A guest that got its machine after all our own jobs leaves, unless the agreement says that it stays. A guest that got it
ahead of them keeps it until we owe its pool nothing any more (`payback`). Jobs of our own users whose queue is in
another pool (`private`) are no guests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool.policy.flock.private import OF
from pool.policy.flock.shown import GUEST_LEAVES, GUEST_OF, GUEST_POOL, GUEST_STAYS, NICE_USER

Wire = dict[str, Any]


def is_guest(job: Mapping[str, Any]) -> bool:
    """Whether a job, in wire form, belongs to another pool."""
    pool = job.get(GUEST_OF)
    return isinstance(pool, str) and not pool.startswith(OF)


def guest_facts(job: Mapping[str, Any]) -> Wire:
    """The attributes that a machine gets with a job of another pool; none for other jobs.

    Args:
        job: in wire form, as our world has passed it on.
    """
    if not is_guest(job):
        return {}
    leaves = job.get(NICE_USER) is True and job.get(GUEST_STAYS) is not True
    return {GUEST_POOL: job[GUEST_OF], GUEST_LEAVES: leaves}
