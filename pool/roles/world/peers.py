"""The connection to the world of a pool that lends us machines: made again for as long as there is an agreement.

It is one connection of ours to them, also for what they say to us: their world need not be able to reach ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.flock.distance import Distance
from pool.policy.flock.offer_bounds import MOST_IN_MESSAGE, OfferBounds, is_plain_name
from pool.policy.flock.reports import plain_line
from pool.roles.cooperative import WorkTurns
from pool.roles.world.rare_log import RareLog
from pool.roles.world.relay import NoWay
from pool.wire import Connection, Dispatcher, Network, Service, Stream

Wire = dict[str, Any]
FIRST_RETRY, LONGEST_RETRY = 0.2, 30.0
#: Seconds after which a connection has been of use: if it ends then, it is made again at once.
STEADY = 5.0
#: Of the time that passes, one part in so many may go into what one pool offers, and seconds between two looks at most.
SHARE, LONGEST_PAUSE = 10.0, 1.0
#: Calls by which the distance of a pool is measured; one where that says the same as before.
PINGS = 3
#: Seconds for an answer of the other pool's world.
PATIENCE = 10.0


class LenderLink:
    """One pool that lends.

    Args:
        pool: its name.
        network: connects with the certificate that this pool has given us.
        address: of its world node.
        back: what it may say to us.
        offered: called with (slot, ad or None) for each machine that can be had, or cannot any more.
        lost: called when nothing is known of it any more.
        measured: called with `round_trip` each time that it is measured.
        names: that our jobs read in machines, so that it can sum up machines of a kind.
        turns: its offers are taken in in slices.

    Attributes:
        round_trip: seconds for a call and its answer, the least of some; 0 before it is measured.
    """

    def __init__(
        self,
        pool: str,
        network: Network,
        address: str,
        back: Service,
        *,
        offered: Callable[[str, Wire | None], None],
        lost: Callable[[], None],
        measured: Callable[[float], None],
        names: Callable[[], Sequence[str]] = tuple,
        turns: WorkTurns,
        outside: OutsideWorld,
        log: logging.Logger,
    ) -> None:
        self.pool = pool
        self.address = address
        self.trouble = "not reached yet"
        self.round_trip = 0.0
        self._network = network
        self._dispatcher = Dispatcher()
        self._dispatcher.add("world_back", back)
        self._offered = offered
        self._lost = lost
        self._measured = measured
        self._names = names
        self._turns = turns
        self._outside = outside
        self._log = log
        self._rare = RareLog(log)
        self._link: Connection | None = None

    @property
    def link(self) -> Connection:
        """The present connection. Raises NoWay."""
        if self._link is None or self._link.closed.done():
            raise NoWay(f"the pool {self.pool} cannot be reached just now: {self.trouble}", retry=True)
        return self._link

    async def call(self, method: str, params: Mapping[str, Any], timeout: float) -> Any:
        return await self.link.call(method, params, timeout=timeout)

    async def stream(self, method: str, params: Mapping[str, Any]) -> Stream:
        return await self.link.stream(method, params)

    async def tell_names(self) -> None:
        """Tell it which names our jobs read in machines."""
        if self._link is not None:
            await self._tell_names(self._link)

    async def _tell_names(self, link: Connection) -> None:
        try:
            if names := list(self._names()):
                await link.call("world.refer", {"names": names}, timeout=PATIENCE)
        except (PoolError, OSError, TimeoutError) as error:
            self._log.info("a pool does not hear what our jobs ask for", extra={"pool": self.pool, "why": str(error)})

    async def run(self) -> None:
        """Stay connected until cancelled."""
        retry, loop = FIRST_RETRY, asyncio.get_running_loop()
        while True:
            reached = loop.time()
            try:
                async with contextlib.AsyncExitStack() as stack:
                    link = await self._network.connect(self.address, self._dispatcher)
                    stack.push_async_callback(link.close)
                    if "world" not in link.identity.roles:
                        raise NoWay(f"{self.address} is no world node of the pool {self.pool}")
                    measuring = asyncio.get_running_loop().create_task(self._measure(link))
                    stack.callback(measuring.cancel)
                    await self._tell_names(link)
                    reached, bounds = loop.time(), OfferBounds()
                    async with await link.stream("world.offers", {}) as offers:
                        async for items in offers:
                            found = _checked(items)
                            if self._link is None:
                                self._log.info("another pool is reached", extra={"pool": self.pool})
                            self._link, self.trouble = link, ""
                            await self._take_in(found, bounds)
                    raise NoWay("it has ended the connection")
            except (PoolError, OSError, TimeoutError) as error:
                trouble = plain_line(str(error))
                if self._link is not None or self.trouble != trouble:
                    self._rare.warning("another pool is out of reach", {"pool": self.pool, "error": trouble})
                self.trouble = trouble
                if self._link is not None and loop.time() - reached >= STEADY:
                    retry = FIRST_RETRY  # one that is of no use is asked ever less often
            finally:
                self._link = None
                self._lost()
            await asyncio.sleep(retry * (0.5 + self._outside.chance.random()))
            retry = min(retry * 2, LONGEST_RETRY)

    async def _take_in(self, offers: list[tuple[str, Wire | None]], bounds: OfferBounds) -> None:
        """Take in what was offered, a little at a time, and leave time for everything else."""
        async with self._turns.work(self.pool, "take in offers") as turn:
            for slot, ad in offers:
                if turn.is_over:
                    await turn.pause()
                fits = bounds.admit(slot, ad)
                if not fits:
                    said = {"pool": self.pool, "slot": slot[:100]}
                    self._rare.warning("another pool offers more than is taken in", said)
                self._offered(slot, ad if fits else None)
        await asyncio.sleep(min(LONGEST_PAUSE, turn.spent * SHARE))

    async def _measure(self, link: Connection) -> None:
        loop, distance = asyncio.get_running_loop(), Distance()
        while True:
            found = math.inf
            for _ in range(PINGS):
                began = loop.time()
                try:
                    await link.call("world.ping", {}, timeout=LONGEST_RETRY)
                except (PoolError, OSError, TimeoutError):
                    return  # an earlier version of the program, or the end of the connection
                found = min(found, loop.time() - began)
                if distance.stays(found):
                    break
            if distance.is_news(found):
                self.round_trip = found
                self._measured(found)
            await asyncio.sleep(distance.pause)


def _checked(items: Any) -> list[tuple[str, Wire | None]]:
    """Offers as they came in.

    Raises:
        NoWay: they are none.
    """
    if not isinstance(items, list):
        raise NoWay("its offers are no list")
    if len(items) > MOST_IN_MESSAGE:
        raise NoWay(f"it offers {len(items)} machines in one message")
    found: list[tuple[str, Wire | None]] = []
    for item in items:
        match item:
            case [str(slot), dict() | None as ad] if slot.count("@") == 1 and is_plain_name(slot):
                if ad is not None and not all(isinstance(name, str) for name in ad):
                    raise NoWay("an offer has an attribute without a name")
                found.append((slot, ad))
            case _:
                raise NoWay("an offer is not [SLOT@MACHINE, ad]")
    return found
