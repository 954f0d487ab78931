"""The dedicated scheduler's requests to the negotiator, under a submitter of its own, and the claims that come of them.

Each request names the machines that the cycle chose. A request that a later cycle does not repeat is withdrawn. If its
claim waits for a slot whose job has yet to leave, the wait ends, and that job stays (W20).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pool.classad.expr import literal
from pool.jobs.privacy import public
from pool.policy.managed import ACCOUNT, HIERARCHY, MANAGED_BY
from pool.policy.queue import QueuedJob, Wire
from pool.roles.advertise import Advertiser, DemandCount
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import require_both
from pool.roles.schedd.dedicated.machines import slot_of


class ObtainMachines(Protocol):
    """Claims a slot that was matched to a request, for an owner; see `pool.roles.schedd.placement.claiming`."""

    async def __call__(self, match: dict[str, Any], owner: str, wanted: Wire) -> list[HeldClaim]: ...


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """Machines to claim for alike parts of a job.

    Attributes:
        job: whose parts; None for a reservation.
        machines: their slots, a partitionable one as often as parts are to be carved from it.
        ad: what the parts ask for, in wire form.
    """

    job: QueuedJob | None
    machines: tuple[str, ...]
    ad: Wire

    @property
    def key(self) -> tuple[QueuedJob | None, tuple[str, ...]]:
        """The mark by which it differs from another cycle's."""
        return self.job, self.machines


class DedicatedRequests:
    """The requests of one dedicated scheduler.

    Args:
        submitter: its name; address: of its schedd.
        obtain: claims a matched slot.
        changed: called when claims have come, or did not.
        reclaimed: called with the seconds that another job took to leave a machine.
    """

    def __init__(
        self,
        context: ScheddContext,
        submitter: str,
        address: str,
        advertiser: Advertiser,
        obtain: ObtainMachines,
        changed: Callable[[], None],
        reclaimed: Callable[[float], None],
    ) -> None:
        self._reclaimed = reclaimed
        self._context = context
        self._submitter = submitter
        self._address = address
        self._advertiser = advertiser
        self._obtain = obtain
        self._changed = changed
        self._open: dict[int, MachineRequest] = {}
        self._last = 0
        self._demand = DemandCount(context.outside.chance)
        self._advertised = False
        self._tasks: dict[asyncio.Task[Any], str] = {}
        #: When the negotiator asked last, by the loop's time, and since when it has been asked for something.
        self.asked_at: float | None = None
        self.since: float | None = None

    @property
    def coming(self) -> Counter[str]:
        """How many claims on each slot are on their way."""
        return Counter(self._tasks.values())

    @property
    def missing(self) -> int:
        """How many machines are asked for."""
        return sum(len(request.machines) for request in self._open.values())

    def set_requests(self, requests: Sequence[MachineRequest]) -> None:
        """Ask for these machines, and for no others from now on."""
        coming = self.coming
        wanted: Counter[str] = Counter()
        left: list[MachineRequest] = []
        for request in requests:
            machines = [slot_of(machine) for machine in request.machines]
            wanted.update(machines)
            still: list[str] = []
            for machine in machines:
                if coming[machine] > 0:
                    coming[machine] -= 1
                else:
                    still.append(machine)
            if still:
                left.append(MachineRequest(request.job, tuple(still), request.ad))
        for task, slot in list(self._tasks.items()):
            if wanted[slot] > 0:
                wanted[slot] -= 1
            else:
                task.cancel()
        if [one.key for one in left] != [one.key for one in self._open.values()]:
            self._open = {}
            for request in left:
                self._last += 1
                self._open[self._last] = request
            if left:
                self._demand.grows(self._submitter)
            loop = asyncio.get_running_loop()
            self.since = (self.since or loop.time()) if left else None
        self._advertise()

    def _advertise(self) -> None:
        """Have the negotiator know how much is wanted."""
        name, context = self._submitter, self._context
        if not self._open and not self._advertised:
            return
        self._advertised = True
        ad = {
            "MyType": "Submitter",
            "Name": name,
            "Owner": ACCOUNT,
            "User": name,
            "Node": context.name,
            "ScheddName": context.name,
            "ScheddAddress": self._address,
            "IdleJobs": self.missing,
            "RunningJobs": 0,
            "HeldJobs": 0,
            "Demand": self._demand.of(name),
        }
        self._advertiser.publish("Submitter", name, ad)

    def farewell(self) -> None:
        """There are no dedicated jobs any more."""
        self.set_requests([])
        if self._advertised:
            self._advertised = False
            self._advertiser.withdraw("Submitter", self._submitter)

    # -- negotiator --------------------------------------------------------------------------------------

    def requests(self, limit: int) -> list[dict[str, Any]]:
        """The answer to the negotiator (`schedd.requests`)."""
        self.asked_at = asyncio.get_running_loop().time()
        found: list[dict[str, Any]] = []
        for number, request in self._open.items():
            count = min(len(request.machines), limit)
            if count <= 0:
                break
            limit -= count
            found.append(
                {
                    "number": number,
                    "ad": public(self._named(request)),
                    "count": count,
                    "oldest": float(request.ad.get("QDate") or 0),
                    "runs": [[request.job.prio if request.job is not None else 0.0, count]],
                }
            )
        return found

    def _named(self, request: MachineRequest) -> Wire:
        """A request's ad with the machines that it is for (WR 3.2: it requires that they are managed by it)."""
        names = ", ".join(sorted(set(request.machines)))
        managed = (
            f"stringListMember({literal(self._submitter).text}, TARGET.{HIERARCHY} ?: TARGET.{MANAGED_BY})"
            f" && stringListMember(TARGET.Name, {literal(names).text})"
        )
        return {**request.ad, "Requirements": require_both(request.ad.get("Requirements"), [managed])}

    def matched(self, match: dict[str, Any]) -> None:
        """The negotiator has granted a slot: claim it in the background, wait for it where somebody has to leave."""
        request = self._open.get(int(match["request"]))
        slot = str(match["slot"])
        if request is None:
            return  # it is not wanted any more; the match lapses by itself
        free = list(request.machines)
        count = min(int(match["count"]), free.count(slot))
        if count < 1:
            return
        for _ in range(count):
            free.remove(slot)
        if free:
            self._open[int(match["request"])] = MachineRequest(request.job, tuple(free), request.ad)
        else:
            del self._open[int(match["request"])]
        for _ in range(count if not match.get("preempt") else 1):
            task = self._context.spawn(self._claim({**match, "count": 1}, request), "claim", alone=True)
            self._tasks[task] = slot
            task.add_done_callback(self._claimed)

    async def _claim(self, match: dict[str, Any], request: MachineRequest) -> None:
        began = asyncio.get_running_loop().time()
        made = await self._obtain(match, ACCOUNT, self._named(request))
        if made and match.get("preempt"):
            self._reclaimed(asyncio.get_running_loop().time() - began)

    def _claimed(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        self._changed()

    def rejected(self, numbers: Iterable[int]) -> None:
        """A cycle of the negotiator found nothing: the next cycle here may choose other machines."""
        if any(number in self._open for number in numbers):
            self._changed()
