"""The calls of the dedicated scheduler to other parts of the schedd: a record."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pool.policy.gangs import Gathering
from pool.policy.queue import QueuedJob
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.dedicated.gangs import PartsToPlace
from pool.roles.schedd.dedicated.lending import StartJob
from pool.roles.schedd.dedicated.preemption import PreemptionRules
from pool.roles.schedd.dedicated.requests import ObtainMachines


class BeginGang(Protocol):
    """Starts a gang of which each part has a claim; see `pool.roles.schedd.parallel.gangs.Gangs.begin`."""

    async def __call__(self, job: QueuedJob, gathering: Gathering, claims: Mapping[int, HeldClaim]) -> None: ...


@dataclass(slots=True)
class SchedulerCalls:
    """The calls of the scheduler to other parts of the schedd.

    Attributes:
        gatherings: parts of gangs that have yet to be placed.
        obtain: claims a matched slot.
        begin_gang, start_job: start a job on claims.
        save: has a running job saved and leave its machines, for a reason in words.
        fits_lease: whether a job may run on a claim with that lease.
        kept_back: whether an idle job must not start now, for reasons of its own.
        regroup: has idle jobs put where they belong, since the scheduler takes more or fewer of them.
        negotiator_heard: whether there is a negotiator, as far as is known.
        keep: writes a note of the queue's, durably.
        account_of: the name of a user's account in the pool.
        preemption: the rules by which waiting jobs take machines from running ones; None for none.
    """

    gatherings: PartsToPlace
    obtain: ObtainMachines
    begin_gang: BeginGang
    start_job: StartJob
    save: Callable[[QueuedJob, str], Coroutine[Any, Any, None]]
    fits_lease: Callable[[HeldClaim, QueuedJob], bool]
    kept_back: Callable[[QueuedJob], bool]
    regroup: Callable[[], None]
    negotiator_heard: Callable[[], bool]
    keep: Callable[[str, bytes], Coroutine[Any, Any, None]]
    account_of: Callable[[str], str]
    preemption: Callable[[], PreemptionRules | None] = lambda: None
