"""The private networks of this machine's jobs, and the links to other machines for them.

A link begins as a connection of the protocol, so it takes the way that connections take, and needs no port of its own:

    machine with the lower part                    the other machine
    connects again: startd.join_network ---------> detaches that connection, keeps its socket
    startd.network_joined {ticket} --------------> answers when that is done
    detaches the connection too
    socket ========= sealed frames ==============> socket

Where neither machine reaches the other, their schedd's node lends each a connection, and copies bytes between the two
(`pool.roles.schedd.parallel.third_node`). Over them the machines speak TLS, prove themselves by their certificates, and
agree on the link's key, so that the node between them is trusted with nothing.

A machine in another pool is reached by way of the schedd and the pools' worlds (`pool.network.stream_link`), or
directly (`direct_parts`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.network.forwarding import CONNECTED, ONLY_ASK, carry, connect_to_job
from pool.network.rooms import WORLDS, AskThird, JobNetworks, JobRoom, WayOutSource
from pool.network.stream_link import SEED, LinkKeys, carry_link, ends
from pool.pipes.bulk import PATIENCE, open_connection
from pool.roles.links import Links
from pool.roles.startd.slots.records import Slot, SlotClaim, SlotRefused
from pool.wire import Call, CannotConnect, Connection, Stream, WireConnection

#: By this byte a machine says that it has given up the protocol on a connection by a third node.
READY = b"+"
#: Connections by third nodes on which the other machine has not proved itself yet, at most.
MOST_WAITING = 64


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
        #: Connections by a third node that were asked for here: by ticket, the other machine, and the future socket.
        self._asked: dict[str, tuple[str, asyncio.Future[socket.socket]]] = {}
        #: Those that other machines have asked for: by connection, the other machine and the node between.
        self._carried: dict[Connection, tuple[str, str]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self.networks = JobNetworks(node, self._dial, secret, program, out, self._dial_by_third)

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

    # -- to another pool -------------------------------------------------------------------------------------

    async def accept(self, params: dict[str, Any], stream: Stream, start: Activation | None) -> None:
        """A machine in another pool asks for a link, which the stream carries until it ends: {run, part, key}.

        Args:
            start: of the job on the caller's claim.

        Raises:
            SlotRefused: nothing of the job is known here.
            CallRefused: that machine has no part of it, or there is a link.
        """
        room = self._room_of(start, params)
        if room is None or start is None:
            raise _unknown()
        own = await asyncio.to_thread(LinkKeys, bytes.fromhex(self._secret(SEED)))
        keys = own.agree(params["key"], start.gang, dialed=False)
        near, far = ends()
        try:
            room.accept(room.machine_of(params["part"]), near, keys, WORLDS)
            await stream.send(own.public)
        except BaseException:
            far.close()
            raise
        await carry_link(stream, far)

    # -- by a third node -------------------------------------------------------------------------------------

    async def _dial_by_third(self, ask: AskThird, other: str, params: dict[str, Any]) -> tuple[socket.socket, str]:
        """A connection to another machine of a job by a third node, and that node's name: {gang, run, key}."""
        ticket = self._secret(16)
        came: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._asked[ticket] = other, came
        try:
            async with asyncio.timeout(2 * PATIENCE):
                by = await ask(other, ticket)
                peer = await came
        except BaseException:
            if came.done() and not came.cancelled():
                came.result().close()
            raise
        finally:
            del self._asked[ticket]
        connection = await self._links.speak_over(peer, opener=True, name=f"{other} by {by}")
        if connection.identity.node != other:
            await connection.close()
            raise CannotConnect(f"{connection.identity.node} answers in the place of {other}")
        connection.notify("startd.join_carried", params)
        peer = await connection.detach()
        try:
            async with asyncio.timeout(PATIENCE):
                said = await asyncio.get_running_loop().sock_recv(peer, len(READY))
            if said != READY:
                raise CannotConnect(f"{other} does not take the link")
        except BaseException:
            peer.close()
            raise
        return peer, by

    async def lend(self, call: Call, params: dict[str, Any], start: Activation | None) -> None:
        """The caller's connection leads to another machine of a job from now on: {run, ticket, other, asks}.

        Args:
            start: of the job on the caller's claim.

        Raises:
            SlotRefused: nothing of the job is known here, or this machine has not asked for it.
        """
        connection, other, ticket = call.connection, params["other"], params["ticket"]
        room = self._room_of(start, params)
        asked = self._asked.get(ticket) if params["asks"] else None
        fits = asked is not None and asked[0] == other and not asked[1].done()
        if room is None or not room.has_machine(other) or not isinstance(connection, WireConnection):
            fits = False
        elif not params["asks"]:
            fits = len(self._serving) < MOST_WAITING
        if not fits or not isinstance(connection, WireConnection):
            await connection.close()
            raise _unknown()
        peer = await connection.detach()
        lent = self._of(_lent_key(call.identity.node, ticket))
        if not lent.done():
            lent.set_result(None)
        if asked is None:
            loop = asyncio.get_running_loop()
            self._serving.add(task := loop.create_task(self._serve_carried(peer, other, call.identity.node)))
            task.add_done_callback(self._serving.discard)
        elif asked[1].done():
            peer.close()
        else:
            asked[1].set_result(peer)

    def _room_of(self, start: Activation | None, params: dict[str, Any]) -> JobRoom | None:
        return self.networks.room_of(start) if start is not None and start.run == params["run"] else None

    async def lent(self, call: Call, params: dict[str, Any], start: Activation | None) -> None:
        """Wait until `lend` is done: {run, ticket}; `start` as there.

        Raises:
            SlotRefused: nothing of the job is known here, or no connection came.
        """
        if self._room_of(start, params) is None:
            raise _unknown()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._of(_lent_key(call.identity.node, params["ticket"])))
        except TimeoutError:
            raise _unknown() from None

    async def _serve_carried(self, peer: socket.socket, other: str, by: str) -> None:
        with contextlib.suppress(PoolError, OSError):
            connection = await self._links.speak_over(peer, opener=False, name=f"{other} by {by}")
            self._carried[connection] = other, by
            try:
                await asyncio.wait([connection.closed], timeout=PATIENCE)
            finally:
                del self._carried[connection]
                if not connection.closed.done():
                    await connection.close()

    async def join_carried(self, call: Call, params: dict[str, Any]) -> None:
        """As `join`, of a connection by a third node: {gang, run, key}.

        Raises:
            SlotRefused: it is not the machine that was announced, or nothing of the job is known here.
        """
        connection = call.connection
        other, by = self._carried.get(connection, ("", ""))
        if not other or call.identity.node != other or not isinstance(connection, WireConnection):
            await connection.close()
            raise _unknown()
        peer = await connection.detach()
        try:
            peer.send(READY)
        except OSError:
            peer.close()
            return
        self.networks.accept(params, other, peer, by)


def _lent_key(node: str, ticket: str) -> str:
    """Tickets of different schedds never meet."""
    return f"{node} {ticket}"


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
