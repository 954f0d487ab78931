"""Questions of this machine's users to other nodes of the pool, asked by their own node (A9).

A user of a member's machine is known to the kernel there and to nobody else: other nodes know certificates and tokens.
So his node asks for him, with its own certificate, what every member may read. It never asks itself this way, where it
may do everything, and it asks nothing that changes anything.
"""

from __future__ import annotations

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


class Queries(Service):
    """A part of every node; its methods stand beside the node's others."""

    def __init__(self, links: Links) -> None:
        super().__init__()
        self._links = links

    @method(Right.READ, takes=TAKES)
    async def ask(self, call: Call, params: dict[str, Any]) -> Any:
        """The answer of another node: {at, method, params} -> its result"""
        at = self._checked(call, params, ANSWERS)
        return await self._links.call(at, params["method"], params["params"], timeout=PATIENCE)

    @streaming(Right.READ, takes=TAKES)
    async def ask_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The batches of another node: {at, method, params} -> its items, as they come."""
        at = self._checked(call, params, STREAMS)
        link = await self._links.to(at)
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
        at: str = params["at"]
        if not at.startswith("tcp://") or self._links.is_own(at):
            raise CallRefused(f"{at} is not the address of another node")
        return at


def _way_out(method: str) -> str:
    """How a user does what the node does not ask of others. No startd knows users' tokens."""
    if method.startswith("startd."):
        return "run the command on that machine, as root or as the user whose node it is"
    return "show them a token: `poolnode token --user NAME` makes one, $POOLNODE_TOKEN takes it"
