"""A pool that lies: a node of the test's own, with the real wire and the real certificates of its agreements."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pool.client import Pool
from pool.config import Settings
from pool.errors import PoolError
from pool.node import Node as PoolNode
from pool.outside import OutsideWorld
from pool.wire import Connection
from pool.wire.credentials import Credentials
from pool.wire.join import join
from pool.wire.network import RealNetwork
from tests.e2e.support import Node, administrator

Wire = dict[str, Any]
#: The address of its startds, to which nobody but itself ever connects.
STARTD = "tcp://127.0.0.1:1"
#: A request for a machine, of one of its users.
REQUEST: Wire = {
    "schedd": "sub",
    "owner": "mallory",
    "lease": 60.0,
    "count": 1,
    "ad": {"Requirements": ["true"], "JobUniverse": 5, "Cmd": "/bin/true"},
}
_NUMBERS = itertools.count(1)


class EvilPool:
    """The world of a pool, whose answers the test gives. Each has a name of its own.

    Attributes:
        back: the connection on which the honest pool borrows from this one, once it asks for offers.
        machine: the ad of a machine as an honest world offers it.
    """

    def __init__(self, node: PoolNode, honest: Node, place: Path) -> None:
        self.name = node.name
        self.machine: Wire = {}
        self._node = node
        self._honest = honest
        self._place = place
        self._closing = contextlib.AsyncExitStack()
        self.back: Connection
        self._offers: Any = None
        #: The orders to start a job that came: {schedd, startd, verb, params}.
        self.orders: asyncio.Queue[Wire] = asyncio.Queue()
        self._claims = itertools.count(1)

    def answer(self, method: str, function: Callable[..., Any]) -> None:
        """Serve a method by this function from now on."""
        methods: Any = self._node.dispatcher._methods
        methods[method] = replace(methods[method], function=function)

    async def borrow(self) -> Connection:
        """Take the honest pool's invitation; a connection to its world. It shows an idle machine."""
        async with administrator(self._honest) as pool:
            made = await pool.call("node.token", {"roles": ["flock"], "node": self.name, "lifetime": 600, "uses": 1})
        await join(made["token"], self.name, self._place / "as-borrower")
        link = await self.connect()
        async with await link.stream("world.offers", {}) as offers:
            async for items in offers:
                if items:
                    self.machine = items[0][1]
                    break
        return link

    @property
    def credentials(self) -> Credentials:
        """The certificate that the honest pool gave it."""
        return Credentials.load(self._place / "as-borrower")

    async def connect(self) -> Connection:
        """One more connection to the honest pool's world."""
        link = await RealNetwork(credentials=self.credentials).connect(self.credentials.address)
        self._closing.push_async_callback(link.close)
        return link

    async def lend(self, *messages: Any) -> None:
        """Have the honest pool take an invitation, and offer it this: each a list of [slot, ad or None]."""

        async def offers(call: Any, params: Wire, stream: Any) -> None:
            self.back, self._offers = call.connection, stream
            for items in messages:
                await stream.send(items)
            async for _ in stream:
                pass

        self.answer("world.offers", offers)
        async with await Pool.connect(f"unix://{self._node.state}/node.sock") as own:
            name = self._honest.state.stem
            made = await own.call("node.token", {"roles": ["flock"], "node": name, "lifetime": 600, "uses": 1})
        async with administrator(self._honest) as pool:
            await pool.call("world.accept", {"pool": self.name, "token": made["token"]})

    async def offer(self, items: Any) -> None:
        """One more message of offers."""
        await self._offers.send(items)

    async def lend_one(self) -> None:
        """Offer one machine, and take every order for it: nothing is ever run."""
        await self.borrow()

        async def claim(call: Any, params: Wire) -> Wire:
            return {"claims": [self.claim()]}

        async def pass_call(call: Any, params: Wire) -> Wire:
            if params["verb"] == "activate":
                self.orders.put_nowait(params)
            return {}

        self.answer("world.claim", claim)
        self.answer("world.pass_call", pass_call)
        await self.lend([["slot1@den", self.machine]])

    def claim(self) -> Wire:
        """A claim on its machine, as a startd gives it."""
        number = next(self._claims)
        return {"startd": STARTD, "claim": f"claim{number}", "slot": "slot1@den", "ad": self.machine}

    async def say(self, order: Wire, verb: str, **params: Any) -> Any:
        """A call of its startd about the claim of an order; the error's name where it is refused."""
        told = {"claim": order["params"]["claim"], **params}
        way = {"schedd": order["schedd"], "startd": STARTD, "verb": verb, "params": told}
        try:
            return await self.back.call("world_back.pass_back", way)
        except PoolError as error:
            return getattr(error, "kind", type(error).__name__)

    async def close(self) -> None:
        await self._closing.aclose()


@contextlib.asynccontextmanager
async def evil_pool(honest: Node, name: str = "") -> AsyncIterator[EvilPool]:
    """A pool that has agreements with an honest one, in either direction, as soon as the test says so."""
    sets = {"NODE_NAME": name or f"evil{next(_NUMBERS)}", "LISTEN": "127.0.0.1:0", "MAIL": "none"}

    def read() -> Settings:
        return Settings.load(None, sets=sets, environ={}, files=False)

    with tempfile.TemporaryDirectory(prefix="e2e-evil-") as place:
        node = PoolNode(["collector", "world"], read(), Path(place) / "state", OutsideWorld(), read, personal=False)
        await node.start()
        evil = EvilPool(node, honest, Path(place))
        try:
            yield evil
        finally:
            await evil.close()
            await node.stop(handover=False)
