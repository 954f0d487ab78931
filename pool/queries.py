"""Questions of this machine's users to other nodes of the pool, asked by their own node (A9).

A user of a member's machine is known to the kernel there and to nobody else: other nodes know certificates and tokens.
So his node asks for him, with its own certificate, what every member may read. It never asks itself this way, where it
may do everything, and it asks nothing that changes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.roles.links import Links
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.errors import CallRefused

#: The methods that are asked for users: one answer, and a stream of batches.
ANSWERS = frozenset(
    {
        "negotiator.priorities",
        "negotiator.why",
        "negotiator.why_machine",
        "node.info",
        "schedd.summary",
        "schedd.why",
        "startd.why",
    }
)
STREAMS = frozenset({"collector.query", "schedd.history", "schedd.query"})
#: Seconds that an answer is waited for.
PATIENCE = 30.0
TAKES = {"at": str, "method": str, "params": dict}
#: The orders that the node with the pool's authority passes on to another machine for an administrator.
ORDERS = frozenset({"startd.drain", "startd.undrain", "startd.vacate"})


class Queries(Service):
    """A part of every node; its methods stand beside the node's others."""

    def __init__(self, links: Links) -> None:
        super().__init__()
        self._links = links

    @method(Right.READ, takes=TAKES)
    async def forward(self, call: Call, params: dict[str, Any]) -> Any:
        """The answer of another node: {at, method, params} -> its result"""
        at = self._checked(call, params, ANSWERS)
        return await self._links.call(at, params["method"], params["params"], timeout=PATIENCE)

    @streaming(Right.READ, takes=TAKES)
    async def forward_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The batches of another node: {at, method, params} -> its items, as they come."""
        at = self._checked(call, params, STREAMS)
        link = await self._links.connect(at)
        async with await link.stream(params["method"], params["params"]) as answers:
            async for batch in answers:
                await stream.send(batch)
        await stream.finish()

    def _checked(self, call: Call, params: dict[str, Any], methods: frozenset[str]) -> str:
        """The address to ask.

        Raises:
            CallRefused: the caller is no user of this machine, the method is not for this, or the address is this
                node's.
        """
        if call.identity.kind != "user" or call.identity.uid is None:
            raise CallRefused(f"{call.identity} is no user of this machine and asks other nodes itself")
        if params["method"] not in methods:
            raise CallRefused(
                f"{params['method']} is not asked of other nodes for users", hint=_way_out(params["method"])
            )
        return _other_node(self._links, params["at"])


class Maintenance(Service):
    """A part of every node: an administrator's orders to other machines of the pool.

    The other machine takes such an order only from the node with the pool's authority, by its certificate.
    """

    def __init__(self, links: Links, is_authority: Callable[[], bool]) -> None:
        super().__init__()
        self._links = links
        self._is_authority = is_authority

    @method(Right.ADMINISTER, takes=TAKES)
    async def order(self, call: Call, params: dict[str, Any]) -> Any:
        """The answer of another machine to an order: {at, method, params} -> its result

        Raises:
            CallRefused: this node does not have the pool's authority, or it is no order to another machine.
        """
        name: str = params["method"]
        if name not in ORDERS:
            raise CallRefused(f"{name} is no order to another machine")
        at = _other_node(self._links, params["at"])
        if not self._is_authority():
            raise CallRefused("only the node with the pool's authority commands other machines", hint=_ORDER_HINT)
        return await self._links.call(at, name, params["params"], timeout=PATIENCE)


_ORDER_HINT = "run the command there, or on the machine itself"


def _other_node(links: Links, address: str) -> str:
    """The address, if it is one of another node. Raises CallRefused."""
    if not address.startswith("tcp://") or links.is_own(address):
        raise CallRefused(f"{address} is not the address of another node")
    return address


def _way_out(method: str) -> str:
    """How a user does what the node does not ask of others. No startd knows users' tokens."""
    if method in ORDERS:
        return "an administrator runs the command at the node with the pool's authority, or on that machine"
    if method.startswith("startd."):
        return "run the command on that machine, as root or as the user whose node it is"
    return "show them a token: `poolnode token --user NAME` makes one, $POOLNODE_TOKEN takes it"
