"""The private networks of the jobs on one machine: for each a relay, the wires of its parts here, and a link to each
other machine of the job.

The machine with the lower part connects; if there is no link after `OTHER_WAY` seconds, the other one connects, too,
since it may be the only one that can. If there is none after `THIRD` seconds, the first asks for a third node that
carries the link; both try to do without it from time to time. A machine in another pool is reached by the pools'
worlds, and directly as soon as both pools and the network between them let that be (`DirectParts`).

A link that breaks is made again as long as parts run here; connections of the job inside only see lost packets
meanwhile. A relay that dies is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.jobs.network import Setup, has_way_out
from pool.network.closing import HeldTables, tables_of, wait_until_closed
from pool.network.passing import passed_socket
from pool.network.probes import send_probes
from pool.network.relay_link import RelayLink
from pool.network.relay_process import RelayFinder, RelayProcess, RelayProgram
from pool.network.sealed_link import KEYS, SealedLink
from pool.network.traffic import Traffic
from pool.network.way_out_process import OutsideTraffic, WayOutProcess
from pool.wire.errors import CallRefused

log = logging.getLogger("pool.network")

#: Seconds until a broken link is made again, or a wire is asked for again: at first, and at most.
AGAIN, SELDOM = 0.05, 5.0
#: Seconds without a link after which the machine with the higher part connects, too.
OTHER_WAY = 2.0
#: Seconds without a link after which a third node is asked for; and with one by a third node until the machines try
#: again to do without.
THIRD, DIRECT_AGAIN = 3.0, 60.0
#: Seconds for what a job has sent outside, or to its parts on other machines, before its end.
LAST = 30.0
#: The data of each part for the others, by number.
Cards = Sequence[Mapping[str, Any] | None]
Key = tuple[str, int]


class NetworkSpec(Protocol):
    """The network of a job, as its keeper made it."""

    @property
    def network_setup(self) -> tuple[str, ...]:
        """A `pool.jobs.network.Setup` as texts."""
        ...


class WiredKeeper(Protocol):
    """The keeper of a part: it hands out the wire of the job's device.

    Attributes:
        pid: its process, in the job's network; 0 while it starts.
        starting: done when its program runs.
    """

    pid: int
    starting: asyncio.Future[None]
    ended: asyncio.Future[Any]

    @property
    def spec(self) -> NetworkSpec:
        """How the job was started."""
        ...

    def wire(self, fd: int, /) -> None: ...


class Dial(Protocol):
    """Connects to another machine of a job for a link.

    Raises PoolError, OSError or TimeoutError.
    """

    def __call__(self, address: str, params: dict[str, Any]) -> Awaitable[socket.socket]: ...


#: Asks for a third node that carries a link: the other machine, and a ticket. Returns the name of that node.
AskThird = Callable[[str, str], Awaitable[str]]
#: Connects to a machine in another pool, by the parts on it, directly or by the worlds; returns the connection and the
#: keys of the link. Raises PoolError, OSError, EOFError or TimeoutError.
Reach = Callable[[Sequence[int], bool], Awaitable[tuple[socket.socket, bytes]]]
#: The third node of a link that goes by the worlds of two pools.
WORLDS = "the pools' worlds"


class ThirdDial(Protocol):
    """Connects to another machine of a job by a third node; returns the connection, and the name of that node.

    Raises PoolError, OSError or TimeoutError.
    """

    def __call__(self, ask: AskThird, other: str, params: dict[str, Any]) -> Awaitable[tuple[socket.socket, str]]: ...


class WayOutSource(Protocol):
    """The machine's way out for jobs.

    Attributes:
        program: of one job's way out.
    """

    program: Path

    async def rules_for(self, nodes: Sequence[str], hosts: str, /) -> bytes:
        """The packed rules of a job, whose parts run at nodes with these addresses, and which has this /etc/hosts."""
        ...


class CardsDiffer(PoolError):
    """The parts of a job do not all have a private network."""


def machines_of(cards: Cards) -> dict[str, list[int]]:
    """The parts of each machine, by its node's name; parts that have ended are nowhere.

    Raises:
        CardsDiffer: some parts have a private network, and others have not.
    """
    found: dict[str, list[int]] = {}
    for part, card in enumerate(cards):
        if card is not None:
            found.setdefault(str(card.get("node", "")), []).append(part)
    if len({str(card.get("network", "")) for card in cards if card is not None}) > 1:
        raise CardsDiffer(
            "the parts of the job have different networks, since their machines have",
            hint="write job_network = private or job_network = host",
        )
    return found


class JobRoom:
    """One job network, as far as it is on this machine.

    Args:
        program: finds the relay that runs here.
        out: the machine's way out; None for a network without.
        hosts: the job's /etc/hosts.
    """

    def __init__(
        self,
        node: str,
        start: Activation,
        cards: Cards,
        program: FindRelay,
        dial: Dial,
        secret: Secret,
        out: WayOutSource | None = None,
        hosts: str = "",
        third: ThirdDial | None = None,
    ) -> None:
        self._start = start
        self._node = node
        self._machines = machines_of(cards)
        #: By machine; empty for one in another pool.
        self._addresses = {str(card["node"]): str(card.get("address", "")) for card in cards if card is not None}
        #: The machines whose kernels take large packets.
        self._large = {str(card["node"]) for card in cards if card is not None and card.get("large") is True}
        self._dial = dial
        self._secret = secret
        self._find = program
        self._relay = RelayProcess(Path())
        #: Whether the relay seals links itself.
        self._seals = False
        self._hosts = hosts
        self._way_out: WayOutProcess | None = None
        #: Of the first way out; a later one has the same, since the job has the names and addresses of its start.
        self._rules: bytes | None = None
        self._keepers: dict[int, WiredKeeper] = {}
        self._third = third
        #: By part here, how to ask for a third node.
        self._asks: dict[int, AskThird] = {}
        #: By part here, how to connect to machines in other pools.
        self._reaches: dict[int, Reach] = {}
        #: By machine, the third node of the latest link to it, if that link goes or went by one.
        self._by: dict[str, str] = {}
        self._links: dict[str, RelayLink | SealedLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._up = asyncio.Event()
        began = asyncio.get_running_loop().time()
        #: The machines to which there is no link, and since when.
        self._down = {other: began for other in self._machines if other != node}
        #: By machine, set while there is no link to it.
        self._cut = {other: asyncio.Event() for other in self._down}
        #: By machine, set while the link to it goes by the pools' worlds.
        self._by_worlds = {other: asyncio.Event() for other in self._down}
        #: When the link to each machine was made.
        self._made: dict[str, float] = {}
        self._draining = False
        #: Whether a way out of this network has ended, or could not begin.
        self._lost_way_out = False
        #: Whether its first way out is there, or cannot be, or is not wanted.
        self._outside_up = asyncio.Event()
        #: By part here, also of those that have ended: the tables of its connections.
        self._tables: dict[int, HeldTables] = {}
        #: The parts here whose processes have ended.
        self._finished: set[int] = set()
        #: The parts here that are being saved with all others.
        self._holding: set[int] = set()
        self._task("relay", self._keep_relay())
        if out is None:
            self._outside_up.set()
        else:
            self._task("way out", self._keep_way_out(out))
        for other in self._down:
            self._cut[other].set()
            self._task(f"link {other}", self._keep_link(other))
            if third is not None and self._is_first(other) and self._addresses[other]:
                self._task(f"third {other}", self._keep_third(other, third))
            if not self._addresses[other]:
                self._task(f"direct {other}", self._keep_direct(other))

    @property
    def parts(self) -> frozenset[int]:
        """The numbers of the parts that run here."""
        return frozenset(self._keepers)

    @property
    def down(self) -> dict[str, float]:
        """The machines of other parts to which there is no link, and for how many seconds."""
        now = asyncio.get_running_loop().time()
        return {other: now - since for other, since in self._down.items()}

    @property
    def by_third(self) -> dict[str, str]:
        """The machines that are reached by a third node, and its name."""
        return {other: by for other, by in self._by.items() if other not in self._down}

    @property
    def direct(self) -> list[str]:
        """The machines in other pools that are reached directly."""
        apart = [other for other, address in self._addresses.items() if not address and other in self._links]
        return [other for other in apart if other not in self._down and other not in self._by]

    def machine_of(self, part: int) -> str:
        """The machine of a part; empty for none that is known."""
        return next((node for node, parts in self._machines.items() if part in parts), "")

    def has_machine(self, node: str) -> bool:
        """Whether another machine has parts of the network."""
        return node in self._machines and node != self._node

    def add(self, part: int, keeper: WiredKeeper, ask: AskThird | None = None, reach: Reach | None = None) -> None:
        """A part begins here.

        Args:
            ask: asks for a third node; None: there is none for it.
            reach: connects to machines in other pools; None: it has no parts there.
        """
        self._keepers[part] = keeper
        if ask is not None:
            self._asks[part] = ask
        if reach is not None:
            self._reaches[part] = reach
        self._task(f"wire {part}", self._wire(part, keeper))

    def drop(self, part: int) -> bool:
        """A part has ended here; whether it was the last one."""
        self._keepers.pop(part, None)
        self._asks.pop(part, None)
        self._reaches.pop(part, None)
        self.release(part)
        if task := self._tasks.pop(f"wire {part}", None):
            task.cancel()
        return not self._keepers

    def accept(self, node: str, peer: socket.socket, keys: bytes, by: str = "") -> None:
        """Another machine has connected.

        Args:
            by: the third node that carries the connection; empty for none.

        Raises:
            CallRefused: it has no part of this network, or both have connected, and the link of the one with the lower
                part, this one, is new.
        """
        if not self.has_machine(node):
            peer.close()
            raise CallRefused("that machine has no part of the job")
        new = node not in self._down and asyncio.get_running_loop().time() - self._made[node] < SELDOM
        if new and self._is_first(node):
            peer.close()
            raise CallRefused("there is a link already", retry=True)
        self._link(node, peer, keys, dialed=False, by=by)

    async def hold(self, part: int) -> None:
        """Carry nothing from now on: a checkpoint of all parts begins. For the raised see `RelayProcess.traffic`."""
        self._holding.add(part)
        self._relay.hold(True)
        await self._relay.traffic()

    def release(self, part: int) -> None:
        """Carry packets again, if no other part here holds them."""
        self._holding.discard(part)
        self._relay.hold(bool(self._holding))

    async def traffic(self) -> Traffic:
        """The packets so far. For the raised see `RelayProcess.traffic`."""
        return await self._relay.traffic()

    async def outside(self) -> OutsideTraffic | None:
        """The connections to the outside so far; None without a way out. For the raised see `WayOutProcess.report`."""
        return await self._way_out.report() if self._way_out is not None else None

    async def close(self) -> None:
        """End relay and links."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for link in self._links.values():
            link.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in self._tables.values():
            held.close()
        await self._relay.close()

    def _task(self, name: str, work: Any) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(work)

    async def _keep_relay(self) -> None:
        while True:
            try:
                usable = await self._find()
                self._seals = usable.seals
                self._relay = RelayProcess(usable.path)
                await self._relay.begin(max(self._start.parts, 1))
            except (OSError, PoolError) as error:
                log.error("cannot start a job's relay", extra={"error": str(error)})
                await asyncio.sleep(SELDOM)
                continue
            self._relay.hold(bool(self._holding))
            self._join_way_out()
            self._up.set()
            code = await self._relay.ended()
            self._up.clear()
            log.error("a job's relay has ended", extra={"code": code, "job": self._start.name})
            await self._relay.close()
            for link in self._links.values():
                link.close()
            self._ask_for_wires()
            await asyncio.sleep(AGAIN)

    def _ask_for_wires(self) -> None:
        for part, keeper in self._keepers.items():
            self._tasks.pop(f"wire {part}").cancel()
            self._task(f"wire {part}", self._wire(part, keeper))

    def _join_way_out(self) -> None:
        """Give the way out to the relay, which may be a new one: connections to the outside outlive a relay."""
        if (way := self._way_out) is not None and way.wire is not None and way.decider is not None:
            self._relay.add_way_out(way.wire, way.decider)
            self._outside_up.set()

    async def _keep_way_out(self, out: WayOutSource) -> None:
        nodes, pause = sorted({*self._addresses.values()} - {""}), AGAIN
        while True:
            way = WayOutProcess(out.program)
            try:
                if self._rules is None:
                    self._rules = await out.rules_for(nodes, self._hosts)
                await way.begin(self._rules)
                await self._up.wait()
                self._way_out = way
                self._join_way_out()
                if self._lost_way_out:
                    self._ask_for_wires()
                began = asyncio.get_running_loop().time()
                code = await way.ended()
                if self._draining:
                    return
                log.error("the way out of a job's network has ended", extra={"code": code, "job": self._start.name})
                if asyncio.get_running_loop().time() - began > SELDOM:
                    pause = AGAIN
            except (OSError, TimeoutError) as error:
                log.error("cannot start the way out of a job's network", extra={"error": str(error)})
                self._outside_up.set()
            finally:
                self._way_out, self._lost_way_out = None, True
                await way.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, SELDOM)

    async def drain(self) -> None:
        """The job has ended: wait until the bytes that it has sent are on their way outside, `LAST` seconds at most."""
        way = self._way_out
        if way is None or self._draining:
            return
        self._draining = True
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(LAST):
                await way.finish()

    async def finish(self, part: int) -> None:
        """The processes of a part have ended by themselves: if it is the last one here, wait until the other machines
        have what the parts here have sent, `LAST` seconds at most. The network of an ended part lives as long as its
        wire, and its kernel sends until all is acknowledged.
        """
        self._finished.add(part)
        if self._keepers.keys() - self._finished:
            return
        tables = list(self._tables.values())
        await wait_until_closed(lambda: "".join(map(HeldTables.read, tables)), LAST, lambda: self._is_alone(part))

    def _is_alone(self, part: int) -> bool:
        """Whether no machine is there any more that could get something, or the part has been dropped."""
        away = [since for other, since in self.down.items() if other != self._node]
        return part not in self._keepers or (len(away) == len(self._machines) - 1 and min(away, default=0) > OTHER_WAY)

    async def _hold_tables(self, part: int, keeper: WiredKeeper) -> None:
        """Open the tables of a part once its process is known, which is after it has given its wire."""
        if len(self._machines) == 1:
            return
        await asyncio.wait([keeper.starting, keeper.ended], return_when=asyncio.FIRST_COMPLETED)
        if keeper.pid:
            if (before := self._tables.pop(part, None)) is not None:
                before.close()
            self._tables[part] = HeldTables(keeper.pid)

    async def _wire(self, part: int, keeper: WiredKeeper) -> None:
        """Get the part's wire from its keeper, which may be about to start, and give it to the relay. If a way out has
        died, connections of the job may have died with it, and are to notice (`probes`).

        The packets of the job wait in the wire until its way out is there: its first question is not lost.
        """
        pause = AGAIN
        while not keeper.ended.done():
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            near.setblocking(False)
            with near:
                with far:
                    keeper.wire(far.fileno())
                with contextlib.suppress(TimeoutError, OSError):
                    async with asyncio.timeout(SELDOM):
                        wire = await passed_socket(near)
                    if wire is not None:
                        with wire:
                            await self._up.wait()
                            await self._outside_or_time()
                            self._relay.add_wire(part, wire)
                            if self._lost_way_out and self._way_out is not None and keeper.pid:
                                send_probes(wire, tables_of(keeper.pid))
                        await self._hold_tables(part, keeper)
                        return
            await asyncio.sleep(pause)
            pause = min(2 * pause, SELDOM)

    async def _outside_or_time(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SELDOM):
                await self._outside_up.wait()

    def _is_first(self, other: str) -> bool:
        """Whether this machine is the one that connects at once: it has a lower part than the other one."""
        return min(self._machines.get(self._node, [0])) < min(self._machines[other])

    async def _keep_link(self, other: str) -> None:
        """Connect to a machine whenever there is no link to it: at once, or when the other side has had `OTHER_WAY`
        seconds to do so. Where both have connected, the first one's link stays. A link by a third node is replaced.
        """
        loop, pause, first = asyncio.get_running_loop(), AGAIN, self._is_first(other)
        while True:
            await self._up.wait()
            began = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DIRECT_AGAIN if other in self._by and self._addresses[other] else None):
                    await self._cut[other].wait()
            if loop.time() - began > SELDOM:
                pause = AGAIN
            wait = 0.0 if first or other not in self._down else self._down[other] + OTHER_WAY - loop.time()
            if wait > 0 or not self._up.is_set():
                await asyncio.sleep(max(wait, 0.0))
                continue
            try:
                peer, keys = await self._connect(other)
                if first or self._cut[other].is_set() or other in self._by:
                    self._link(other, peer, keys, dialed=True, by="" if self._addresses[other] else WORLDS)
                else:
                    peer.close()
            except (PoolError, OSError, EOFError, TimeoutError) as error:
                log.info("a link of a job's network is not made", extra={"to": other, "error": str(error)})
            await asyncio.sleep(pause)
            pause = min(2 * pause, SELDOM)

    async def _connect(self, other: str) -> tuple[socket.socket, bytes]:
        """A connection to a machine, and the keys of the link over it. For the raised see `Reach`."""
        if address := self._addresses[other]:
            keys, params = self._new_link()
            return await self._dial(address, params), keys
        if not self._reaches:
            raise CallRefused(f"nothing here leads to {other}", retry=True)
        return await self._reaches[min(self._reaches)](self._machines[other], False)

    async def _keep_direct(self, other: str) -> None:
        """Replace the link to a machine in another pool that goes by the worlds; the machine with the higher part
        tries that later, since it may be the only one that can.
        """
        while True:
            await self._by_worlds[other].wait()
            if not self._is_first(other):
                await asyncio.sleep(SELDOM + OTHER_WAY)
            try:
                if self._reaches and self._by_worlds[other].is_set():
                    peer, keys = await self._reaches[min(self._reaches)](self._machines[other], True)
                    self._link(other, peer, keys, dialed=True)
            except (PoolError, OSError, EOFError, TimeoutError) as error:
                log.info("a link to another pool stays with the worlds", extra={"to": other, "error": str(error)})
            await asyncio.sleep(DIRECT_AGAIN)

    def end_direct(self) -> None:
        """End the direct links to machines in other pools: their pool, or ours, does not want them any more."""
        for other, link in list(self._links.items()):
            if not self._addresses[other] and not self._by_worlds[other].is_set():
                link.close()

    def _new_link(self) -> tuple[bytes, dict[str, Any]]:
        """Keys that no link has had, and the words to the other machine."""
        keys = bytes.fromhex(self._secret(KEYS))
        return keys, {"gang": self._start.gang, "run": self._start.run, "key": keys}

    async def _keep_third(self, other: str, third: ThirdDial) -> None:
        """Have a third node carry the link to a machine when there is none for `THIRD` seconds; at once where the
        latest one went by a third node, too.
        """
        loop, pause = asyncio.get_running_loop(), AGAIN
        while True:
            await self._up.wait()
            await self._cut[other].wait()
            wait = self._down[other] + (AGAIN if other in self._by else THIRD) - loop.time()
            if wait > 0 or not self._asks or not self._up.is_set():
                await asyncio.sleep(max(wait, AGAIN))
                continue
            try:
                keys, params = self._new_link()
                peer, by = await third(self._asks[min(self._asks)], other, params)
                if self._cut[other].is_set() and self._up.is_set():
                    self._link(other, peer, keys, dialed=True, by=by)
                    pause = AGAIN
                else:
                    peer.close()
            except (PoolError, OSError, TimeoutError) as error:
                log.info("no third node carries a link", extra={"to": other, "error": str(error)})
            await asyncio.sleep(pause)
            pause = min(2 * pause, SELDOM)

    def _link(self, node: str, peer: socket.socket, keys: bytes, *, dialed: bool, by: str = "") -> None:
        if by:
            self._by[node] = by
        else:
            self._by.pop(node, None)
        if by == WORLDS:
            self._by_worlds[node].set()
        else:
            self._by_worlds[node].clear()
        if (before := self._links.pop(node, None)) is not None:
            before.close()

        def ended() -> None:
            if self._links.get(node) is link:
                self._down[node] = asyncio.get_running_loop().time()
                self._cut[node].set()
                self._by_worlds[node].clear()

        self._down.pop(node, None)
        self._cut[node].clear()
        self._made[node] = asyncio.get_running_loop().time()
        link: RelayLink | SealedLink
        parts, large = self._machines[node], node in self._large
        if self._seals:
            link = RelayLink(self._relay, parts, peer, keys, dialed=dialed, large=large, ended=ended)
        else:
            link = SealedLink(peer, keys, dialed=dialed, ended=ended)
            with link.relay:
                self._relay.add_link(parts, link.relay, large=large)
        self._links[node] = link


#: Finds the relay that runs on this machine.
FindRelay = Callable[[], Awaitable[RelayProgram]]
#: Draws that many random bytes as text.
Secret = Callable[[int], str]


class JobNetworks:
    """The networks of all jobs on one machine.

    Args:
        node: this node's name.
        dial: connects to another machine.
        program: the relay.
        out: the machine's way out; None: no job has one.
        third: connects by a third node; None: none ever does.
    """

    def __init__(
        self,
        node: str,
        dial: Dial,
        secret: Secret,
        program: Path,
        out: WayOutSource | None = None,
        third: ThirdDial | None = None,
    ) -> None:
        self._node = node
        self._dial = dial
        self._secret = secret
        self._relay = RelayFinder(program)
        self._out = out
        self._third = third
        #: By its keeper, the network of a job of one part, and the task that ends it.
        self._alone: dict[WiredKeeper, tuple[JobRoom, asyncio.Task[None]]] = {}
        self._rooms: dict[Key, JobRoom] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def enter(
        self,
        start: Activation,
        cards: Cards,
        keeper: WiredKeeper,
        ask: AskThird | None = None,
        reach: Reach | None = None,
    ) -> None:
        """A part of a job begins here, with a private network.

        Args:
            ask, reach: see `JobRoom.add`.

        Raises:
            CardsDiffer: other parts have none.
        """
        key = start.gang, start.run
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = self._room(start, cards, keeper)
        room.add(start.part, keeper, ask, reach)

    def _room(self, start: Activation, cards: Cards, keeper: WiredKeeper) -> JobRoom:
        out = self._out if has_way_out(keeper.spec.network_setup) else None
        hosts = Setup(*keeper.spec.network_setup).hosts if out is not None else ""
        return JobRoom(self._node, start, cards, self._relay, self._dial, self._secret, out, hosts, self._third)

    def enter_alone(self, start: Activation, keeper: WiredKeeper) -> JobRoom:
        """A job of one part with a way out begins here, or is found again; the network ends with its keeper."""
        room = self._room(start, [{"node": self._node, "address": ""}], keeper)
        room.add(0, keeper)
        self._alone[keeper] = room, asyncio.get_running_loop().create_task(self._leave_alone(room, keeper))
        return room

    async def _leave_alone(self, room: JobRoom, keeper: WiredKeeper) -> None:
        await asyncio.wait([keeper.ended])
        del self._alone[keeper]
        room.drop(0)
        await self._close(room)

    async def leave(self, start: Activation) -> None:
        """A part has ended here, or never began."""
        room = self._rooms.get((start.gang, start.run))
        if room is not None and room.drop(start.part):
            del self._rooms[start.gang, start.run]
            self._closing.add(task := asyncio.get_running_loop().create_task(self._close(room)))
            task.add_done_callback(self._closing.discard)

    async def _close(self, room: JobRoom) -> None:
        await room.drain()
        await room.close()

    def room_of(self, start: Activation) -> JobRoom | None:
        """The network of a part that runs here."""
        return self._rooms.get((start.gang, start.run))

    def accept(self, params: Mapping[str, Any], node: str, peer: socket.socket, by: str = "") -> None:
        """Another machine of a job has connected: {gang, run, key}; `by`: see `JobRoom.accept`.

        Raises:
            CallRefused: nothing of the job is known here, or the machine has no part of it.
        """
        room = self._rooms.get((str(params["gang"]), int(params["run"])))
        if room is None or len(params["key"]) != KEYS:
            peer.close()
            raise CallRefused("no part of a job here waits for this link", retry=True)
        room.accept(node, peer, params["key"], by)

    def has_part(self, params: Mapping[str, Any]) -> bool:
        """Whether a part of the job runs here: {gang, run}."""
        return (str(params["gang"]), int(params["run"])) in self._rooms
