"""Direct connections between parts of jobs on this machine and parts on machines of other pools.

Both pools' agreements let them (`pool.policy.flock.direct`). The part that opens a pipe or a link asks the schedd for
the other part's offer, and connects to its machine (`pool.network.direct_link`). On that connection the two machines
speak the protocol, about these two parts only: pipes are streams of it, and a pipe that carries much or a link of the
job's network gets a socket of its own, whose ticket and key are told on it. So direct pipes and links outlive all
nodes between. A connection ends with the job's run here, or when the agreement does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.network.direct_link import PATIENCE, DirectOffers, dial, is_open, numbered, speak
from pool.network.sealed_link import KEYS
from pool.network.stream_link import SEED, LinkKeys
from pool.pipes.bulk import SwitchingSender
from pool.pipes.protocol import PipeStream
from pool.roles.base import Spawn
from pool.roles.startd.running.networks import NetworkLinks
from pool.roles.startd.running.streams import ExpectedStreams
from pool.roles.startd.slots.present_job import PresentJob
from pool.roles.startd.slots.records import SlotClaim, SlotRefused
from pool.wire import Call, Connection, Dispatcher, Network, Service, Stream, WireConnection, method, streaming
from pool.wire.bulk_stream import KEY, BulkSender
from pool.wire.errors import CallRefused

#: Seconds until a direct connection is tried again.
DIRECT_AGAIN = 60.0
#: Gang, run, part here, and part there.
Pair = tuple[str, int, int, int]
TROUBLE = (PoolError, OSError, EOFError, TimeoutError)


class DirectParts:
    """The direct connections of one startd.

    Args:
        address: this node's.
        network: connects to nodes of other pools.
        secret: draws that many random bytes as text.
    """

    def __init__(
        self,
        streams: ExpectedStreams,
        networks: NetworkLinks,
        network: Callable[[], Network],
        secret: Callable[[int], str],
        spawn: Spawn,
        log: logging.Logger,
        *,
        address: str,
    ) -> None:
        self.streams = streams
        self.networks = networks
        self.offers = DirectOffers(secret)
        self._network = network
        self.secret = secret
        self._spawn = spawn
        self.log = log
        self._address = address
        #: By pair, the connection, and the address of the other machine where this one has connected.
        self._links: dict[Pair, tuple[WireConnection, str]] = {}
        self._opening: dict[Pair, asyncio.Task[WireConnection]] = {}
        #: The pairs of each run here.
        self._runs: dict[PresentJob, set[Pair]] = {}

    # -- connections that are asked for here -------------------------------------------------------------------

    async def offer(self, params: dict[str, Any], claim: SlotClaim) -> dict[str, Any]:
        """Another part wants to connect to the one on a claim: {run, part, key} -> {address, ticket, key}

        Raises:
            SlotRefused: no such part runs here.
            CallRefused: its key is none.
        """
        run, start = claim.running, claim.running.start if claim.running is not None else None
        if run is None or start is None or not start.gang or start.run != params["run"]:
            raise SlotRefused("no part of that job runs here", retry=True)
        own = await asyncio.to_thread(LinkKeys, bytes.fromhex(self.secret(SEED)))
        keys = own.agree(params["key"], start.gang, dialed=False)
        pair = (start.gang, start.run, start.part, int(params["part"]))
        self._begin(run)
        ticket = self.offers.offer(keys, partial(self._came, run, start, pair, keys), run)
        return {"address": await numbered(self._address), "ticket": ticket, "key": own.public}

    def _came(self, run: PresentJob, start: Activation, pair: Pair, keys: bytes, peer: socket.socket) -> None:
        self._spawn(self._serve(run, start, pair, keys, peer), "direct connection", alone=True)

    async def _serve(self, run: PresentJob, start: Activation, pair: Pair, keys: bytes, peer: socket.socket) -> None:
        try:
            link = await speak(peer, keys, self._door(run, start, pair), dialed=False, name=_name(start, pair))
        except TROUBLE as error:
            self.log.info("a direct connection has ended again", extra={"job": start.name, "why": str(error)})
            return
        self._keep_link(run, pair, link, "")

    def _door(self, run: PresentJob, start: Activation, pair: Pair) -> Dispatcher:
        dispatcher = Dispatcher()
        dispatcher.add("direct", PartDoor(self, run, start, pair[-1]))
        return dispatcher

    # -- connections that are wanted here ----------------------------------------------------------------------

    async def join(self, start: Activation, part: int, stream: int) -> PipeStream | None:
        """A pipe's stream to another part by the connection to it; None without one."""
        pair = (start.gang, start.run, start.part, part)
        link, address = self._links.get(pair, (None, ""))
        if link is None or not is_open(link):
            return None
        opened = await link.stream("direct.pipe", {"stream": stream})
        return SwitchingSender(opened, partial(self._open_bulk, link, address, stream)) if address else opened

    def is_reached(self, start: Activation, part: int) -> bool:
        """Whether there is a connection to a part."""
        return is_open(self._links.get((start.gang, start.run, start.part, part), (None, ""))[0])

    async def wait_reached(self, claim: SlotClaim, start: Activation, part: int) -> None:
        """Wait until there is a connection to a part; it is tried again and again."""
        while True:
            try:
                await self._reach(claim, start, part, [part])
                return
            except TROUBLE as error:
                said = {"job": start.name, "part": part, "why": str(error)}
                self.log.info("a part in another pool is not reached directly", extra=said)
            await asyncio.sleep(DIRECT_AGAIN)

    async def link(self, claim: SlotClaim, start: Activation, parts: Sequence[int]) -> tuple[socket.socket, bytes]:
        """A connection for a link of the job's network to the machine of these parts, and its keys.

        Raises:
            PoolError, OSError, EOFError, TimeoutError: there is none.
        """
        link = await self._reach(claim, start, min(parts), parts)
        address = self._links[start.gang, start.run, start.part, min(parts)][1]
        if not address:
            raise CallRefused("the other machine has connected, and makes the link", retry=True)
        _, peer, keys = await self._socket(link, address, None)
        return peer, keys

    async def _reach(self, claim: SlotClaim, start: Activation, part: int, parts: Sequence[int]) -> WireConnection:
        pair = (start.gang, start.run, start.part, part)
        link, _ = self._links.get(pair, (None, ""))
        if link is not None and is_open(link):
            return link
        opening = self._opening.get(pair)
        if opening is None:
            work = self._open(claim, start, pair, parts)
            opening = self._opening[pair] = asyncio.get_running_loop().create_task(work)
            opening.add_done_callback(partial(self._opened, pair))
        return await asyncio.shield(opening)

    def _opened(self, pair: Pair, opening: asyncio.Task[WireConnection]) -> None:
        del self._opening[pair]
        if not opening.cancelled():
            opening.exception()  # nobody may wait for it any more

    async def _open(self, claim: SlotClaim, start: Activation, pair: Pair, parts: Sequence[int]) -> WireConnection:
        run = claim.running
        if run is None:
            raise SlotRefused("the job has ended")
        own = await asyncio.to_thread(LinkKeys, bytes.fromhex(self.secret(SEED)))
        asked = {"claim": claim.id, "run": start.run, "parts": list(parts), "key": own.public}
        offer = await claim.schedd.call("schedd.direct_to_part", asked, timeout=PATIENCE)
        keys = own.agree(offer["key"], start.gang, dialed=True)
        peer = await dial(self._network(), offer["address"], "startd", offer["ticket"], keys)
        link = await speak(peer, keys, self._door(run, start, pair), dialed=True, name=_name(start, pair))
        self._begin(run)
        self._keep_link(run, pair, link, offer["address"])
        return link

    async def _socket(self, link: Connection, address: str, stream: int | None) -> tuple[str, socket.socket, bytes]:
        """A further connection to the machine at the other end of a link: its ticket there, socket and keys."""
        match await link.call("direct.connect", {"stream": stream}, timeout=PATIENCE):
            case {"ticket": str(ticket), "key": bytes(keys)} if len(keys) == KEYS:
                return ticket, await dial(self._network(), address, "startd", ticket, keys), keys
        raise CallRefused("the other machine's offer makes no sense")

    async def _open_bulk(self, link: Connection, address: str, stream: int) -> tuple[str, BulkSender]:
        ticket, peer, keys = await self._socket(link, address, stream)
        return ticket, BulkSender(peer, keys[:KEY])

    # -- their ends --------------------------------------------------------------------------------------------

    def _begin(self, run: PresentJob) -> None:
        if run not in self._runs:
            self._runs[run] = set()
            self._spawn(self._end_with(run), "direct connections", alone=True)

    async def _end_with(self, run: PresentJob) -> None:
        await run.gone.wait()
        self.end(run)
        del self._runs[run]

    def _keep_link(self, run: PresentJob, pair: Pair, link: WireConnection, address: str) -> None:
        if run not in self._runs or run.gone.is_set():
            link.drop()
            return
        before, _ = self._links.get(pair, (None, ""))
        self._links[pair] = link, address
        self._runs[run].add(pair)
        if before is not None:
            before.drop()
        self.log.info("parts of a job in two pools are connected directly", extra={"pair": _name(run.start, pair)})

    def end(self, run: PresentJob) -> None:
        """End the direct connections of a run at once, and those that are on their way."""
        self.offers.withdraw(run)
        for pair in self._runs.get(run, ()):
            if (opening := self._opening.get(pair)) is not None:
                opening.cancel()
            if (link := self._links.pop(pair, None)) is not None:
                link[0].drop()
        if run in self._runs:
            self._runs[run].clear()
        if run.start is not None and (room := self.networks.networks.room_of(run.start)) is not None:
            room.end_direct()


class PartDoor(Service):
    """The methods for another part of a job, on a direct connection: bytes for the part here, and nothing else.

    Args:
        part: the other one.
    """

    def __init__(self, parts: DirectParts, run: PresentJob, start: Activation, part: int) -> None:
        self._parts = parts
        self._run = run
        self._start = start
        self._part = part

    @streaming(None, takes={"stream": int})
    async def pipe(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The other part writes: {stream}; as `startd.join`."""
        self._check_pipe(params["stream"])
        known = {"gang": self._start.gang, "run": self._start.run, "stream": params["stream"]}
        await self._parts.streams.serve(known, stream)

    @method(None, takes={"stream": int | None})
    async def connect(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Offer a further connection, for a pipe or, without a number, for a link: {stream} -> {ticket, key}"""
        stream, keys = params.get("stream"), bytes.fromhex(self._parts.secret(KEYS))
        if stream is None:
            if self._parts.networks.networks.room_of(self._start) is None:
                raise SlotRefused("no part of a job here waits for this link", retry=True)
            return {"ticket": self._parts.offers.offer(keys, partial(self._take_link, keys), self._run), "key": keys}
        self._check_pipe(stream)

        def take_bulk(peer: socket.socket) -> None:
            self._parts.streams.take_socket(ticket, peer, keys[:KEY])

        ticket = self._parts.offers.offer(keys, take_bulk, self._run)
        return {"ticket": ticket, "key": keys}

    def _check_pipe(self, stream: int) -> None:
        if all((number, part) != (stream, self._part) for _, number, part in self._start.crossings):
            raise CallRefused("the job has no such pipe")

    def _take_link(self, keys: bytes, peer: socket.socket) -> None:
        room = self._parts.networks.networks.room_of(self._start)
        if room is None:
            peer.close()
            return
        try:
            room.accept(room.machine_of(self._part), peer, keys)
        except CallRefused as error:
            self._parts.log.info("a direct link is not taken", extra={"job": self._start.name, "why": error.message})


def _name(start: Activation, pair: Pair) -> str:
    return f"part {pair[-1]} of job {start.name}"
