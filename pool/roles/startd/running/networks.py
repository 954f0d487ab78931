"""The private networks of this machine's jobs, and the links to other machines for them.

A link begins as a connection of the protocol, so it takes the way that connections take, and needs no port of its own:

    machine with the lower part                    the other machine
    connects again: startd.join_network ---------> detaches that connection, keeps its socket
    startd.network_joined {ticket} --------------> answers when that is done
    detaches the connection too
    socket ========= sealed frames ==============> socket
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pool.network.forwarding import CONNECTED, ONLY_ASK, carry, connect_to_job
from pool.network.rooms import JobNetworks, WayOutSource
from pool.pipes.bulk import PATIENCE, open_connection
from pool.roles.links import Links
from pool.roles.startd.slots.records import Slot, SlotClaim, SlotRefused
from pool.wire import Call, Stream, WireConnection


class NetworkLinks:
    """The links of one startd's job networks.

    Args:
        node: this node's name.
        secret: draws that many random bytes as text.
        program: the relay. out: the machine's way out.
    """

    def __init__(
        self, node: str, links: Links, secret: Callable[[int], str], program: Path, out: WayOutSource | None = None
    ) -> None:
        self._links = links
        self._secret = secret
        self._joined: dict[str, asyncio.Future[None]] = {}
        self.networks = JobNetworks(node, self._dial, secret, program, out)

    async def join(self, call: Call, params: dict[str, Any]) -> None:
        """The caller's connection is to carry packets of a job from now on: {gang, run, ticket, key}.

        Raises:
            SlotRefused: nothing of the job is known here, or the connection cannot.
        """
        connection = call.connection
        if not self.networks.has_part(params) or not isinstance(connection, WireConnection):
            await connection.close()
            raise _unknown()
        self.networks.accept(params, call.identity.node, await connection.detach())
        joined = self._of(str(params["ticket"]))
        if not joined.done():
            joined.set_result(None)

    async def joined(self, params: dict[str, Any]) -> None:
        """Wait until `join` is done: {gang, run, ticket}.

        Raises:
            SlotRefused: nothing of the job is known here, or no connection came.
        """
        if not self.networks.has_part(params):
            raise _unknown()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._of(str(params["ticket"])))
        except TimeoutError:
            raise _unknown() from None

    def _of(self, ticket: str) -> asyncio.Future[None]:
        if ticket not in self._joined:
            loop = asyncio.get_running_loop()
            self._joined[ticket] = loop.create_future()
            loop.call_later(2 * PATIENCE, self._forget, ticket)
        return self._joined[ticket]

    def _forget(self, ticket: str) -> None:
        if (waiting := self._joined.pop(ticket, None)) is not None:
            waiting.cancel()

    async def _dial(self, address: str, params: dict[str, Any]) -> socket.socket:
        async with asyncio.timeout(PATIENCE):
            link = await self._links.connect(address)
        apart, key = partial(self._links.connect_apart, address), params.pop("key")
        known = {**params, "ticket": self._secret(16)}
        return await open_connection(link, apart, ("startd.join_network", "startd.network_joined"), known, key)


async def forward_to(slot: Slot, claim: SlotClaim, params: dict[str, Any], stream: Stream) -> None:
    """Carry a connection to a port of the job that runs on a slot: {run, port}; with ONLY_ASK only see if one could be.

    Raises:
        SlotRefused: no such job runs there, or it has no network of its own.
        ForwardRefused: nothing listens on the port.
    """
    running, port = claim.running, int(params["port"])
    keeper = running.starter.keeper if running is not None and running.starter is not None else None
    if running is None or keeper is None or keeper.ended.done() or running.start.run != params["run"]:
        raise SlotRefused(f"no such job runs on slot {slot.name}", retry=True)
    if not keeper.spec.network_setup:
        raise SlotRefused("the job has its machine's network", hint="ports are forwarded with job_network = private")
    if port == ONLY_ASK:
        await stream.send(CONNECTED)
        return
    if not 0 < port < 65536:
        raise SlotRefused(f"there is no port {port}", hint="ports are 1 to 65535")
    connection = await connect_to_job(keeper, port)
    await stream.send(CONNECTED)
    await carry(stream, connection)


def _unknown() -> SlotRefused:
    return SlotRefused("no part of a job here waits for this link", retry=True)
