"""The schedd's methods about its dedicated scheduler: the plan, and reservations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pool.config import Settings
from pool.outside import OutsideWorld
from pool.roles.schedd.core.callers import owner_of
from pool.roles.schedd.dedicated.reservations import read_request
from pool.roles.schedd.dedicated.scheduler import DedicatedScheduler
from pool.roles.schedd.dedicated.settings import reservation_quota
from pool.wire import Call, Right, Service, method

#: The machines are looked at so many times more, while others reserve some.
LOOKS = 3


class DedicatedMethods(Service):
    """Questions to the dedicated scheduler, and reservations."""

    def __init__(self, scheduler: DedicatedScheduler, outside: OutsideWorld, settings: Callable[[], Settings]) -> None:
        self._scheduler = scheduler
        self._outside = outside
        self._settings = settings

    @method(Right.READ)
    async def dedicated_plan(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The machines over time: {} -> {scheduler, time, machines, bars, starts, reservations, loans}

        See `pool.client.dedicated.DedicatedPlan`.
        """
        scheduler = self._scheduler
        plan = await scheduler.planned(await scheduler.state_now(), call.identity.name)
        loans = scheduler.machines.loans(scheduler.held().values(), self._outside.wall())
        return {
            "machines": sum(plan.machines.values()),
            "bars": [
                {
                    "label": bar.label,
                    "user": bar.user,
                    "what": bar.what,
                    "machines": sum(bar.machines.values()),
                    "names": list(bar.names),
                    "start": bar.start,
                    "end": bar.end if math.isfinite(bar.end) else None,
                }
                for bar in plan.bars
            ],
            "starts": [{**asdict(one), "basis": one.basis.value} for one in plan.starts],
            "scheduler": self._scheduler.submitter,
            "time": self._outside.wall(),
            "reservations": self._scheduler.reservations.listed(),
            "loans": [asdict(loan) for loan in loans],
            "accounts": "pool" if scheduler.accounts.by_pool else "own",
        }

    @method(Right.READ)
    async def reservations(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """All reservations, the first to begin in front."""
        return self._scheduler.reservations.listed()

    @method(
        Right.SUBMIT,
        takes={
            "machines": int,
            "start": int | float,
            "duration": int | float,
            "user": str | None,
            "group": str | None,
            "requirements": str | None,
        },
    )
    async def reserve_machines(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Reserve machines: {machines, start, duration, ...} -> the reservation, which is on disk then"""
        scheduler, reservations = self._scheduler, self._scheduler.reservations
        administer = Right.ADMINISTER in call.identity.rights
        now = self._outside.wall()
        user = owner_of(call, {})
        asked = read_request(params, user, administer=administer, now=now)
        state = await scheduler.look_with(asked)
        for _ in range(LOOKS):  # others may have been made meanwhile
            if reservations.are_in(state.fits):
                break
            state = await scheduler.look_with(asked)
        configured = Counter(machine.kind for machine in state.machines)
        for run in state.running:
            for share in run.shares:
                configured[share.kind] += len(share.machines)
        quota = None if administer else reservation_quota(self._settings())
        reservations.check(asked, state.fits, state.running, configured, quota, now)
        return asdict(await reservations.add(asked))

    @method(Right.SUBMIT, takes={"id": str})
    async def cancel_reservation(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Cancel a reservation: {id}. One's own; an administrator anybody's."""
        everybodys = Right.ADMINISTER in call.identity.rights
        await self._scheduler.reservations.cancel(params["id"], owner_of(call, {}), everybodys=everybodys)
        return {}
