"""The World Machine as the thesis built it, as a world role for tests: its own central manager is unchanged (EV 5, 6).

    SimFlock(names, settings=CLASSIC_POOL, roles={"world": ClassicWorld})

Each interval a world tells the others which of its pool's machines are idle, and shows its own central manager one
machine of one other pool. A job that is matched with it stays idle while a machine is asked of a pool that has a
fitting one: its own negotiator answers in its next cycle, where the request stands among its own jobs. Then the
machine is the job's, if the job still wants one. Cycles come an interval after something has changed.

Two things are not as they were built. A claim has a lease, so that a message that is lost leaves no job running for
ever. And a job of another pool never has a user of the machine's pool, nor its files: the mode gives up no trust.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from pool.classad import ClassAd
from pool.classad.match import rank, requirements_accept
from pool.errors import PoolError
from pool.policy.flock.classic import FreeMachines, appearance, machine_for
from pool.policy.flock.shown import NICE_USER, lent_machine
from pool.roles.world.borrowing import Arrival, MachineBorrower
from pool.roles.world.lending import MachineLender
from pool.roles.world.relay import NoWay, claims_of
from pool.roles.world.role import World
from pool.wire import Call, Right, method
from pool.wire.parameter_checks import TEXTS, optional

Wire = dict[str, Any]
#: Seconds between two cycles of the negotiator, and between two lists of the W-startd (EV 3.5, 5).
INTERVAL = 300.0
#: Seconds for which a request may wait for the other pool's cycle.
SERVED = 4 * INTERVAL
#: Settings of a pool with a central manager of that time: the world's machine is one like others.
CLASSIC_POOL = {
    "NEGOTIATION_SETTLE": f"{INTERVAL:g}",
    "NEGOTIATION_INTERVAL": f"{INTERVAL:g}",
    "NEGOTIATOR_PRE_JOB_RANK": "0",
    "FLOCK_GUESTS_LEAVE": "false",
}


class ClassicBorrower(MachineBorrower):
    """The W-startd towards its own central manager and schedds."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._lists: dict[str, FreeMachines] = {}
        self._shown: tuple[str, str] | None = None

    def offered(self, pool: str, slot: str, ad: Wire | None) -> None:
        """A part of FREE_MACHINES."""
        one = self._lists.setdefault(pool, FreeMachines(0.0))
        one.stamp = asyncio.get_running_loop().time()
        if ad is None:
            one.machines.pop(slot, None)
        else:
            one.machines[slot] = ad

    def lost(self, pool: str) -> None:
        self._lists.pop(pool, None)
        if self._shown is not None and self._shown[0] == pool:
            self._hide()
        self.unreachable(pool)

    def appear(self) -> None:
        """STARTD_INFO: show one machine until the next interval."""
        now = asyncio.get_running_loop().time()
        found = appearance(self._lists, now, 2 * INTERVAL)
        if found != self._shown:
            self._hide()
            self._shown = found
        if self._shown is not None:
            pool, slot = self._shown
            super().offered(pool, slot, self._lists[pool].machines[slot])

    def _hide(self) -> None:
        if self._shown is not None:
            super().offered(*self._shown, None)
        self._shown = None

    @method(
        Right.SUBMIT,
        takes={
            "slot": str, "claim": str, "submitter": str, "owner": str, "lease": int | float, "ad": dict,
            "count": int | None,
        },
    )  # fmt: skip
    async def claim(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """GIVE_MACHINE, and what the schedd says when it has got one (MACHINE)."""
        if params["claim"] in self._arrived:
            claimed: dict[str, Any] = await super().claim(call, params)
            return claimed
        if params["slot"] not in self._slots:
            raise NoWay("the world shows another machine by now", retry=True)
        schedd, job = call.identity.node, ClassAd.from_wire(params["ad"])
        self._schedds[schedd] = call.connection
        self._hide()  # one grant in an interval
        pools = {id(ad): pool for pool, one in self._lists.items() for ad in one.machines.values()}

        def seen(ad: Wire) -> ClassAd:
            return ClassAd.from_wire(lent_machine(ad, "slot@machine", pools[id(ad)], self._address()))

        found = machine_for(
            self._lists,
            lambda ad: requirements_accept(job, seen(ad)) and requirements_accept(seen(ad), job),
            lambda ad: rank(job, seen(ad)) > 0,
        )
        if found is None:
            raise NoWay("no other pool has a machine for it", retry=True)  # NO_MACHINE
        self._spawn(self._request(found[0], schedd, params), "request", alone=True)
        raise NoWay(f"the pool {found[0]} is asked, and answers after its next cycle", retry=True)

    async def _request(self, pool: str, schedd: str, params: Wire) -> None:
        """REQUEST_MACHINE and its answer; then MACHINE, where the job still waits for one."""
        asked = {"schedd": schedd, **{name: params[name] for name in ("owner", "lease", "ad")}, "count": 1}
        try:
            given = claims_of(await self._lender(pool).call("world.claim", asked, timeout=SERVED), 1)
        except (PoolError, OSError) as error:
            self._log.info("no machine was found", extra={"pool": pool, "why": str(error)})  # NOT_FOUND
            return
        link, submitter = self.schedd(schedd), params["submitter"]
        wishes = await link.call("schedd.requests", {"submitter": submitter, "limit": 1000, "references": []})
        wish = next((one for one in wishes["requests"] if _same_wish(one["ad"], params["ad"])), None)
        if wish is None:
            await self.release_unused(pool, schedd, given)
            return
        arrival = Arrival(pool, params["owner"], schedd, float(params["lease"]), given, lambda used: None)
        match = self.arrive(arrival) | {"request": wish["number"], "submitter": submitter}
        await link.call("schedd.matched", {"matches": [{**match, "node": schedd, "schedd": schedd}]})

    def _borrowed_claim(self, pool: str, schedd: str, params: Wire, item: Wire) -> Wire:
        made = super()._borrowed_claim(pool, schedd, params, item)
        self._advertiser.withdraw("Machine", made["slot"])  # the central manager hears nothing of it (EV 8)
        return made


def _same_wish(one: Wire, other: Wire) -> bool:
    return all(one.get(name) == other.get(name) for name in ("Requirements", "Rank", "Owner"))


class ClassicLender(MachineLender):
    """The W-schedd: its requests wait for a cycle, among the pool's own jobs."""

    patience: ClassVar[float] = SERVED

    @method(Right.NEGOTIATE, takes={"submitter": str, "limit": int, "references": optional(TEXTS)})
    async def requests(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """JOB_INFO: as a schedd answers. Nothing says that a request comes after the pool's own jobs."""
        found: dict[str, Any] = await super().requests(call, params)
        for one in found["requests"]:
            one["ad"] = {**one["ad"], NICE_USER: False}
        return found


class ClassicWorld(World):
    """The world of one pool, by the classic design."""

    borrower_class: ClassVar[type[MachineBorrower]] = ClassicBorrower
    lender_class: ClassVar[type[MachineLender]] = ClassicLender

    async def start(self) -> None:
        await super().start()
        self.spawn(self._advertise_intervals(), "interval")

    def _machine_changed(self, slot: str, ad: Wire | None) -> None:
        """Told at the next interval."""

    async def _advertise_intervals(self) -> None:
        """The W-startd's time-out: FREE_MACHINES to each pool that may run jobs here, and STARTD_INFO."""
        told: set[str] = set()
        while True:
            free = self.lending.lendable()
            told |= free.keys()
            for borrower in self._borrowers.values():
                for slot in told:
                    borrower.changed(slot, free.get(slot))
            await asyncio.sleep(1.0)
            assert isinstance(self.borrowing, ClassicBorrower)
            self.borrowing.appear()
            await asyncio.sleep(INTERVAL - 1.0)
