"""What the pool is told of a schedd's users: how many jobs each has and wants to run. Nothing is decided here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pool.policy.queue import HELD, IDLE, RUNNING, SUSPENDED
from pool.roles.advertise import Advertiser

if TYPE_CHECKING:
    from pool.roles.schedd.role import Schedd

#: Seconds between two advertisements of an owner's numbers: when new work came, and otherwise.
SOON, LATER = 0.02, 0.25


class Submitters:
    """Tells the pool how many jobs each user wants to run; bursts become one advertisement."""

    def __init__(self, schedd: Schedd, advertiser: Advertiser) -> None:
        self._schedd = schedd
        self._advertiser = advertiser
        self._dirty: dict[str, bool] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._sent = -1e9
        self._demand: dict[str, int] = {}

    def changed(self, owner: str, more: bool) -> None:
        """An owner's numbers changed; `more` when there is new work that a slot must be found for."""
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
        queue, given, placement = self._schedd.queue, self._schedd.given, self._schedd.placement
        for owner, more in dirty.items():
            name = f"{owner}@{given.node}"
            idle = queue.count(owner, IDLE)
            running = queue.count(owner, RUNNING, SUSPENDED)
            if more:
                self._demand[owner] = self._demand.get(owner, 0) + 1
            if not idle and not running and not queue.count(owner, HELD):
                self._advertiser.withdraw("Submitter", name)
                self._demand.pop(owner, None)
                continue
            self._advertiser.publish(
                "Submitter",
                name,
                {
                    "MyType": "Submitter",
                    "Name": name,
                    "Owner": owner,
                    "User": f"{owner}@{self._schedd.settings.text('UID_DOMAIN')}",
                    "Node": given.node,
                    "ScheddName": given.node,
                    "ScheddAddress": given.address,
                    "IdleJobs": idle,
                    "RunningJobs": running,
                    "HeldJobs": queue.count(owner, HELD),
                    "MovingJobs": placement.moving.count(owner) + placement.leaving.count(owner),
                    "Demand": self._demand.get(owner, 0),
                },
            )
        self._advertiser.publish("Scheduler", given.node, self._schedd.own_ad())
