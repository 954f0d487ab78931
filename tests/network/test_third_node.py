"""A link by a third node: what the node between can do, and callers that lie to it or in its name."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.errors import PoolError
from pool.network.sealed_link import KEYS
from pool.outside import OutsideWorld
from pool.roles.links import Links
from pool.roles.schedd.parallel import third_node
from pool.roles.schedd.parallel.third_node import ThirdNode
from pool.roles.startd.running.networks import MOST_WAITING, NetworkLinks
from pool.roles.startd.slots.records import SlotRefused
from pool.wire import Call, Dispatcher, RealNetwork, Right, Service, WireConnection, method, network, own_identity
from pool.wire.authority import Authority
from pool.wire.credentials import Credentials
from pool.wire.identity import node_identity
from tests.starter.support import until

HEAD = node_identity("head", ["schedd"])


class Joining(Service):
    """A startd's method that takes a link."""

    links: NetworkLinks

    @method(Right.EXECUTE, takes={"gang": str, "run": int, "key": bytes})
    async def join_carried(self, call: Call, params: dict[str, Any]) -> None:
        await self.links.join_carried(call, params)


class Lent(WireConnection):
    """A connection from the third node, with one end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.ended = False

    async def detach(self) -> socket.socket:
        return self.end

    async def close(self) -> None:
        self.ended = True
        self.end.close()


class Machine:
    """One machine of the job.

    Attributes:
        taken: the links that came to it: (params, node, socket, third node).
    """

    def __init__(self, place: Path, authority: Authority, name: str) -> None:
        credentials = Credentials.create(place / name, authority, name, ["startd"])
        joining, dispatcher = Joining(), Dispatcher()
        dispatcher.add("startd", joining)
        self.network = RealNetwork(dispatcher, own_identity(name), credentials)
        links = Links(self.network, dispatcher)
        self.links = joining.links = NetworkLinks(name, links, secrets.token_hex, place / "relay")
        self.taken: list[tuple[dict[str, Any], str, socket.socket, str]] = []
        room = SimpleNamespace(has_machine=lambda node: node in ("one", "two"))
        networks = cast(Any, self.links.networks)
        networks.room_of = lambda given: room if given.gang == "secret" else None
        networks.accept = lambda *said: self.taken.append(said)

    async def lend(self, ticket: str, other: str, *, asks: bool, run: int = 1, gang: str = "secret") -> socket.socket:
        """The third node lends a connection; its end there."""
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        params = {"run": run, "ticket": ticket, "other": other, "asks": asks}
        given = SimpleNamespace(gang=gang, run=1)
        try:
            await self.links.lend(Call(HEAD, Lent(near)), params, cast(Any, given))
        except SlotRefused:
            assert near.fileno() < 0, "it is closed"
            far.close()
            raise
        return far


Pass = Callable[[bytes], bytes]


class World:
    """Two machines and the node between them.

    Attributes:
        seen: all bytes that the node between has copied.
    """

    def __init__(self, place: Path) -> None:
        outside = OutsideWorld(wall=time.time, chance=random.Random(1))
        authority = Authority.open(place / "authority", "ours", outside)
        self.one, self.two, self.three = (Machine(place, authority, name) for name in ("one", "two", "three"))
        theirs = Authority.open(place / "theirs", "theirs", outside)
        self.stranger = Machine(place / "other pool", theirs, "two")
        self.seen = b""
        self.tasks: list[asyncio.Task[None]] = []

    async def copy(self, source: socket.socket, to: socket.socket, change: Pass) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError), source, to:
            while data := await loop.sock_recv(source, 1 << 16):
                self.seen += data
                await loop.sock_sendall(to, change(data))

    def between(self, one: socket.socket, two: socket.socket, change: Pass) -> None:
        for source, to in ((one, two), (two, one)):
            self.tasks.append(asyncio.ensure_future(self.copy(source, to.dup(), change)))

    async def dial(self, change: Pass = bytes, key: bytes = bytes(KEYS)) -> tuple[socket.socket, str]:
        """Machine one connects to two by the third node."""

        async def ask(other: str, ticket: str) -> str:
            ends = await self.one.lend(ticket, other, asks=True), await self.two.lend(ticket, "one", asks=False)
            self.between(*ends, change)
            return "head"

        params = {"gang": "secret", "run": 1, "key": key}
        return await self.one.links._dial_by_third(ask, "two", params)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(network, "CONNECT_SECONDS", 1.0)
    made = World(tmp_path)
    yield made
    await made.close()
    for machine in (made.one, made.two):
        for _, _, end, _ in machine.taken:
            end.close()


async def test_the_node_between_copies_bytes_and_learns_no_key(world: World) -> None:
    key = secrets.token_bytes(KEYS)
    peer, by = await world.dial(key=key)
    (params, node, other, named), *more = world.two.taken
    assert not more
    assert (by, named, node, params["key"]) == ("head", "head", "one", key)
    loop = asyncio.get_running_loop()
    other.setblocking(False)
    for source, to, data in ((peer, other, b"there"), (other, peer, b"back")):
        await loop.sock_sendall(source, data)
        assert await loop.sock_recv(to, 100) == data
    assert not any(key[at : at + 8] in world.seen for at in range(KEYS - 8))
    assert not world.one.links._asked
    peer.close()


@pytest.mark.parametrize("at", [3, 400, 1500, 2500])
async def test_a_node_between_that_changes_bytes_gets_no_link(world: World, at: int) -> None:
    passed = 0

    def change(data: bytes) -> bytes:
        nonlocal passed
        found = bytearray(data)
        if passed <= at < passed + len(data):
            found[at - passed] ^= 1
        passed += len(data)
        return bytes(found)

    with pytest.raises((PoolError, TimeoutError, OSError)):
        await world.dial(change)
    assert not world.two.taken


@pytest.mark.parametrize(("who", "why"), [("three", "three answers in the place of two"), ("stranger", "not of this")])
async def test_a_node_between_cannot_answer_in_the_others_place(world: World, who: str, why: str) -> None:
    """With a certificate of the pool for another machine, or one of another pool for a machine of the same name."""
    liar: Machine = getattr(world, who)
    serving: list[asyncio.Task[WireConnection]] = []

    async def ask(other: str, ticket: str) -> str:
        end = await world.one.lend(ticket, other, asks=True)
        serves = liar.network.speak_over(end, Dispatcher(), opener=False, name="one")
        serving.append(asyncio.ensure_future(serves))
        return "head"

    with pytest.raises(PoolError, match=why):
        await world.one.links._dial_by_third(ask, "two", {"gang": "secret", "run": 1, "key": bytes(KEYS)})
    await asyncio.gather(*serving, return_exceptions=True)
    assert not liar.taken


@pytest.mark.parametrize("who", ["three", "stranger", "two", "garbage"])
async def test_a_node_between_cannot_ask_in_the_others_name(world: World, who: str) -> None:
    """The machine that was announced is "one"."""
    end = await world.two.lend("ticket", "one", asks=False)
    if who == "garbage":
        end.send(b"\xff" * 1000)
    else:
        liar: Machine = getattr(world, who)
        with contextlib.suppress(PoolError):
            link = await liar.network.speak_over(end, None, opener=True, name="two")
            with pytest.raises(PoolError):
                await link.call("startd.join_carried", {"gang": "secret", "run": 1, "key": bytes(KEYS)})
    await until(lambda: not world.two.links._serving)
    assert not world.two.taken
    assert not world.two.links._carried
    end.close()


async def test_a_link_by_no_third_node_is_not_taken(world: World) -> None:
    """A node of the pool that calls the method on a connection of its own."""
    near, far = socket.socketpair()
    links = Links(world.two.network, world.two.network._dispatcher or Dispatcher())
    serving = asyncio.ensure_future(links.speak_over(near, opener=False, name="one"))
    link = await world.one.network.speak_over(far, None, opener=True, name="two")
    with pytest.raises(PoolError):
        await link.call("startd.join_carried", {"gang": "secret", "run": 1, "key": bytes(KEYS)})
    assert not world.two.taken
    await (await serving).close()
    await link.close()


async def test_connections_that_nobody_asked_for_are_closed(world: World) -> None:
    one = world.one
    for asks, more in (
        (True, {}),
        (False, {"other": "stranger"}),
        (False, {"run": 2}),
        (False, {"gang": "another"}),
    ):
        with pytest.raises(SlotRefused, match="waits for this link"):
            await one.lend(**cast(Any, {"ticket": "guess", "other": "two", "asks": asks} | more))
    with pytest.raises(SlotRefused):
        await one.links.lend(
            Call(HEAD, Lent(socket.socketpair()[0])), {"other": "two", "ticket": "", "asks": False}, None
        )
    ends = [await one.lend(str(number), "two", asks=False) for number in range(MOST_WAITING)]
    with pytest.raises(SlotRefused):
        await one.lend("one more", "two", asks=False)
    for end in ends:
        end.close()
    await until(lambda: not one.links._serving)


@pytest.mark.parametrize("start", [None, SimpleNamespace(gang="another", run=1), SimpleNamespace(gang="secret", run=2)])
async def test_nobody_else_waits_for_connections(world: World, start: Any) -> None:
    """Nothing is kept of tickets that are made up."""
    for number in range(100):
        with pytest.raises(SlotRefused, match="waits for this link"):
            await world.one.links.lent(Call(HEAD, Lent(socket.socket())), {"run": 1, "ticket": str(number)}, start)
    assert not world.one.links._joined


async def test_a_ticket_is_good_once_and_for_the_machine_that_was_asked_for(world: World) -> None:
    ends = []

    async def ask(other: str, ticket: str) -> str:
        with pytest.raises(SlotRefused):
            await world.one.lend(ticket, "one", asks=True)
        ends.append(await world.one.lend(ticket, other, asks=True))
        with pytest.raises(SlotRefused):
            await world.one.lend(ticket, other, asks=True)
        ends[0].close()
        return "head"

    with pytest.raises(PoolError):
        await world.one.links._dial_by_third(ask, "two", {"gang": "secret", "run": 1, "key": bytes(KEYS)})


# -- the schedd's node ---------------------------------------------------------------------------------------


class Middle:
    """A schedd's node with a job on machines one and two, to which it connects by socket pairs."""

    def __init__(self, relay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        met = asyncio.get_running_loop().create_future()
        met.set_result(None)
        gang = SimpleNamespace(secret="secret", root=None, met=met, claims={}, job=SimpleNamespace(id=(1, 0)))
        self.claims = {}
        for part, name in enumerate(("one", "two", "two")):
            claim = SimpleNamespace(id=str(part), slot=f"slot{part}@{name}", startd=name, gang=gang, run=1, part=part)
            self.claims[claim.id] = gang.claims[part] = claim
        self.gang = gang
        log = SimpleNamespace(info=lambda *said, **more: None)
        links = SimpleNamespace(connect=self._connect, connect_apart=self._connect)
        context = SimpleNamespace(name="head", claims=self.claims, links=links, log=log)
        self.node = ThirdNode(cast(Any, context), relay)
        self.refuses: set[str] = set()
        self.machines: dict[str, list[socket.socket]] = {"one": [], "two": []}
        monkeypatch.setattr(third_node, "open_connection", self._open)

    async def _connect(self, address: str) -> str:
        return address

    async def _open(self, link: str, *_: object) -> socket.socket:
        if link in self.refuses:
            raise SlotRefused("no")
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        self.machines[link].append(far)
        return near

    async def passes(self) -> None:
        """Bytes pass between the latest connections of both machines."""
        loop, data = asyncio.get_running_loop(), secrets.token_bytes(3_000_000)
        for source, to in (("one", "two"), ("two", "one")):
            sending = asyncio.ensure_future(loop.sock_sendall(self.machines[source][-1], data))
            got = b""
            async with asyncio.timeout(20):
                while len(got) < len(data):
                    got += await loop.sock_recv(self.machines[to][-1], 1 << 20)
            await sending
            assert got == data


@pytest.fixture
async def middle(sanitized_relay: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Middle]:
    monkeypatch.setattr("pool.policy.third_node.PAUSE", 0.0)
    made = Middle(sanitized_relay, monkeypatch)
    yield made
    await made.node.close()
    for ends in made.machines.values():
        for end in ends:
            end.close()


async def over(end: socket.socket) -> None:
    """The other side has closed a connection."""
    async with asyncio.timeout(10):
        assert await asyncio.get_running_loop().sock_recv(end, 1) == b""


async def test_bytes_pass_whole_and_a_new_link_takes_the_place_of_the_earlier(middle: Middle) -> None:
    assert await middle.node.carry("0", 1, "two", "ticket") == "head"
    await middle.passes()
    await middle.node.carry("1", 1, "one", "ticket")
    await over(middle.machines["one"][0])
    await middle.passes()
    assert len(middle.node._carried) == 1
    middle.machines["two"][-1].close()
    await over(middle.machines["one"][-1])
    await until(lambda: not (middle.node._carried or middle.node._splices._jobs))
    assert not middle.node._links._all


@pytest.mark.parametrize(
    "asked", [("9", 1, "two"), ("0", 2, "two"), ("0", 1, "three"), ("0", 1, "one"), ("1", 1, "two")]
)
async def test_forged_asks_are_refused_and_nobody_is_connected_to(middle: Middle, asked: tuple[str, int, str]) -> None:
    with pytest.raises(PoolError):
        await middle.node.carry(*asked, "ticket")
    assert middle.machines == {"one": [], "two": []}
    assert not middle.node._links._all


async def test_a_part_in_another_pool_takes_no_machines_place(middle: Middle) -> None:
    """The slots of other pools' machines end with the name of the world's node, which may have a part of its own."""
    lent = SimpleNamespace(id="3", slot="slot1@lab@chem@one", startd="lab", gang=middle.gang, run=1, part=3)
    middle.claims["3"] = middle.gang.claims[3] = lent
    await middle.node.carry("1", 1, "one", "ticket")
    await middle.passes()


async def test_a_job_that_ends_gets_no_link(middle: Middle) -> None:
    middle.gang.root = 0
    with pytest.raises(PoolError, match="no such job runs"):
        await middle.node.carry("0", 1, "two", "ticket")


async def test_where_a_machine_refuses_nothing_is_left(middle: Middle) -> None:
    middle.refuses = {"two"}
    for _ in range(3):
        with pytest.raises(PoolError, match="no link by this node: two: no"):
            await middle.node.carry("0", 1, "two", "ticket")
    for end in middle.machines["one"]:
        await over(end)
    assert not middle.node._links._all
    middle.refuses = set()
    await middle.node.carry("0", 1, "two", "ticket")
    await middle.passes()


async def test_a_killed_relay_ends_the_link_and_the_next_one_has_a_new_relay(middle: Middle) -> None:
    await middle.node.carry("0", 1, "two", "ticket")
    (splices,) = middle.node._splices._jobs.values()
    assert splices.relay._process is not None
    splices.relay._process.kill()
    for name in ("one", "two"):
        await over(middle.machines[name][-1])
    await middle.node.carry("0", 1, "two", "ticket")
    await middle.passes()


async def test_a_machine_that_does_not_read_costs_bounded_memory_and_stops_no_other_link(middle: Middle) -> None:
    await middle.node.carry("0", 1, "two", "ticket")
    loop, sender = asyncio.get_running_loop(), middle.machines["one"][-1]
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.3):
                await loop.sock_sendall(sender, bytes(1 << 16))
                sent += 1 << 16
    assert sent < 4 << 20
    other = SimpleNamespace(
        **{**vars(middle.claims["0"]), "id": "3", "slot": "slot@three", "startd": "three", "part": 3}
    )
    middle.machines["three"] = []
    middle.claims["3"] = middle.gang.claims[3] = other
    await middle.node.carry("3", 1, "two", "ticket")
    end = middle.machines["three"][-1]
    await loop.sock_sendall(end, b"beside")
    async with asyncio.timeout(10):
        assert await loop.sock_recv(middle.machines["two"][-1], 100) == b"beside"
