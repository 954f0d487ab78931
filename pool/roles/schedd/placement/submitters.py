"""Tells the pool how many jobs each user of a schedd has and wants to run. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pool.policy.managed import is_reserved
from pool.policy.queue import HELD, IDLE, RUNNING, SUSPENDED
from pool.roles.advertise import Advertiser, DemandCount
from pool.roles.schedd.core.context import ScheddContext

#: Seconds between two advertisements of an owner's numbers: when new work came, and otherwise.
SOON, LATER = 0.02, 0.25


class Submitters:
    """Advertises a schedd's users; bursts of changes become one advertisement.

    Args:
        movers: how many of an owner's running jobs look for another machine.
        domain: UID_DOMAIN, as it is now.
    """

    def __init__(
        self,
        context: ScheddContext,
        advertiser: Advertiser,
        address: str,
        *,
        movers: Callable[[str], int],
        domain: Callable[[], str],
    ) -> None:
        self._context = context
        self._advertiser = advertiser
        self._address = address
        self._movers = movers
        self._domain = domain
        self._dirty: dict[str, bool] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._sent = -1e9
        self._demand = DemandCount(context.outside.chance)

    def changed(self, owner: str, more: bool) -> None:
        """An owner's numbers changed; `more` when there is new work that a slot must be found for."""
        if is_reserved(owner):
            return  # the dedicated scheduler advertises itself
        loop = asyncio.get_running_loop()
        self._dirty[owner] = self._dirty.get(owner, False) or more
        due = max(loop.time(), self._sent + (SOON if more else LATER))
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = loop.call_at(due, self._publish)

    def _publish(self) -> None:
        self._timer = None
        self._sent = asyncio.get_running_loop().time()
        dirty, self._dirty = self._dirty, {}
        queue, node, domain = self._context.queue, self._context.name, self._domain()
        for owner, more in dirty.items():
            name = f"{owner}@{node}"
            idle = queue.count(owner, IDLE)
            running = queue.count(owner, RUNNING, SUSPENDED)
            if more:
                self._demand.grows(owner)
            if not idle and not running and not queue.count(owner, HELD):
                self._advertiser.withdraw("Submitter", name)
                self._demand.forget(owner)
                continue
            self._advertiser.publish(
                "Submitter",
                name,
                {
                    "MyType": "Submitter",
                    "Name": name,
                    "Owner": owner,
                    "User": f"{owner}@{domain}",
                    "Node": node,
                    "ScheddName": node,
                    "ScheddAddress": self._address,
                    "IdleJobs": idle,
                    "RunningJobs": running,
                    "HeldJobs": queue.count(owner, HELD),
                    "MovingJobs": self._movers(owner),
                    "Demand": self._demand.of(owner),
                },
            )
        self.publish_schedd()

    def publish_schedd(self) -> None:
        """Advertise the schedd itself, with the numbers of all its jobs."""
        queue, counts = self._context.queue, dict[int, int]()
        for own in queue.counts.values():
            for status, number in own.items():
                counts[status] = counts.get(status, 0) + number
        ad = {
            "MyType": "Scheduler",
            "Name": self._context.name,
            "ScheddAddress": self._address,
            "TotalIdleJobs": counts.get(IDLE, 0),
            "TotalRunningJobs": counts.get(RUNNING, 0) + counts.get(SUSPENDED, 0),
            "TotalHeldJobs": counts.get(HELD, 0),
            "Users": len(queue.owners()),
        }
        self._advertiser.publish("Scheduler", self._context.name, ad)
