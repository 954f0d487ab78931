"""Idle claims that nothing starts on are kept, lent or released here (W14, W23, W26; WR 4.1, 4.2, 6.2).

| situation | the claim is |
|---|---|
| a reservation has it | kept |
| the head can use it and is expected to start within the time that a reclaim takes, and some seconds | kept |
| a head waits, longer or nobody knows how long | lent to opportunistic jobs, and reclaimed when the head can start |
| a head waits, and holes are not lent | kept |
| no job waits for machines, and the claim was used lately | kept, for the next job |
| no job waits for machines, and it has been idle for `unused_claim_timeout` | released |

The rule of the second row: an opportunistic job in a hole needs the time of a reclaim to leave. A hole that is shorter
costs more than it gives. So the head starts later by one reclaim at most, and by none where the expected ends hold:
machines that are lent are reclaimed that much before the expected start (`discipline`). The seconds
on top (`expectations.GRACE`) are the least use of a hole. A machine that came back sooner than a reclaim was expected
to take, or whose head's start is late by a moment, is not lent again only to be reclaimed at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pool.policy.dedicated.decisions import KeepClaims, KeepReason, LendClaims, ReleaseClaims, WaitForMachines
from pool.policy.dedicated.expectations import GRACE
from pool.policy.dedicated.model import DedicatedJob, DedicatedSettings
from pool.policy.dedicated.supply import MachineNode


def fill_holes(
    idle: Sequence[tuple[MachineNode, list[str]]],
    unused: set[str],
    head: DedicatedJob | None,
    wait: WaitForMachines | None,
    settings: DedicatedSettings,
    now: float,
    next_reservation: float,
) -> tuple[list[KeepClaims], list[LendClaims], list[ReleaseClaims]]:
    """Decide about idle claims that no job got.

    Args:
        idle: those claims, by class.
        unused: those of them that have been idle for `unused_claim_timeout`.
        head: the job that waits for machines, with its `wait`; None when none waits.
        next_reservation: when the next reservation begins; inf when there is none.
    """
    keeps: list[KeepClaims] = []
    lends: list[LendClaims] = []
    releases: list[ReleaseClaims] = []
    if head is None or wait is None:
        recent = [name for _, names in idle for name in names if name not in unused]
        old = [name for _, names in idle for name in names if name in unused]
        if recent:
            keeps.append(KeepClaims(tuple(recent), "", KeepReason.RECENT))
        if old:
            releases.append(ReleaseClaims(tuple(old), next_reservation))
        return keeps, lends, releases
    if not settings.lend:
        everything = tuple(name for _, names in idle for name in names)
        if everything:
            keeps.append(KeepClaims(everything, head.id, KeepReason.HEAD))
        return keeps, lends, releases
    expected = math.inf if wait.expected is None else wait.expected
    soon: list[str] = []
    if expected - now <= settings.reclaim_seconds + GRACE:
        wanted = {kind for part in head.parts for kind in part.fits}
        room = head.size
        for node, names in idle:
            if node.kind in wanted and room > 0:
                soon += names[:room]
                room -= min(room, len(names))
    kept = set(soon)
    lent = tuple(name for _, names in idle for name in names if name not in kept)
    if soon:
        keeps.append(KeepClaims(tuple(soon), head.id, KeepReason.SOON))
    if lent:
        lends.append(LendClaims(lent, head.id, min(expected, next_reservation)))
    return keeps, lends, releases
