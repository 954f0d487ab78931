"""How a job stands, in one word: what programs look at first and what the headline says."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pool.policy.why.findings import (
    Busy,
    ClaimingFinding,
    DedicatedFinding,
    Ended,
    Finding,
    Free,
    GangFinding,
    HeldFinding,
    Limit,
    Machines,
    QuotaFinding,
    RefusedFinding,
    Running,
    Silent,
    Unmet,
    UnreachableFinding,
    Unusable,
)


class Standing(StrEnum):
    """The first of these that is so."""

    ENDED = "ended"
    HELD = "held"
    UNREACHABLE = "waits for a lost machine"
    RUNNING = "running"
    CLAIMING = "being claimed"
    NO_MACHINES = "no machines"
    LIMITED = "limit reached"
    NEXT = "next"
    BUSY = "machines busy"
    UNUSABLE = "machines not to be had"
    REFUSED = "machines refuse"
    NO_MATCH = "no machine matches"
    BLIND = "nobody to ask"
    GATHERING = "machines for some parts only"
    DEDICATED = "waits for dedicated machines"
    UNKNOWN = "unknown"


_BY_KIND: tuple[tuple[type[Finding], Standing], ...] = (
    (Ended, Standing.ENDED),
    (HeldFinding, Standing.HELD),
    (UnreachableFinding, Standing.UNREACHABLE),
    (Running, Standing.RUNNING),
    (ClaimingFinding, Standing.CLAIMING),
    (GangFinding, Standing.GATHERING),
    (DedicatedFinding, Standing.DEDICATED),
)
_BY_MACHINES: tuple[tuple[type[Finding], Standing], ...] = (
    (Free, Standing.NEXT),
    (Busy, Standing.BUSY),
    (Unusable, Standing.UNUSABLE),
    (RefusedFinding, Standing.REFUSED),
    (Unmet, Standing.NO_MATCH),
    (Silent, Standing.BLIND),
)


def standing(findings: Iterable[Finding]) -> Standing:
    """How the job stands."""
    found = list(findings)
    kinds = {type(finding) for finding in found}
    for kind, answer in _BY_KIND:
        if kind in kinds:
            return answer
    machines = next((finding for finding in found if isinstance(finding, Machines)), None)
    if machines is not None and not machines.slots:
        return Standing.BLIND if Silent in kinds else Standing.NO_MACHINES
    binds = any(isinstance(finding, (Limit, QuotaFinding)) and finding.binds for finding in found)
    if binds and (Free in kinds or Busy in kinds):
        return Standing.LIMITED
    for kind, answer in _BY_MACHINES:
        if kind in kinds:
            return answer
    return Standing.UNKNOWN
