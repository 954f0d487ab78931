"""Links between pools: keys that both ends agree on, and bytes that pass as items of a stream."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pool.network.rooms import WORLDS, JobNetworks
from pool.network.sealed_link import KEYS
from pool.network.stream_link import SEED, LinkKeys, agree_over, carry_link, ends
from pool.wire import Call, Dispatcher, Service, Stream, streaming
from pool.wire.errors import CallRefused
from pool.wire.identity import Identity
from pool.wire.local import LocalConnection
from tests.network.support import between, heard
from tests.network.test_rooms import Wires, start
from tests.starter.support import until

#: Points of small order of curve 25519: whoever agrees with one has a key that all know.
ZERO, ONE = bytes(32), (1).to_bytes(32, "little")


def pair() -> tuple[LinkKeys, LinkKeys]:
    return LinkKeys(secrets.token_bytes(SEED)), LinkKeys(secrets.token_bytes(SEED))


def test_both_ends_agree_and_no_two_links_do() -> None:
    seen = set()
    for _ in range(20):
        here, there = pair()
        keys = here.agree(there.public, "secret", dialed=True)
        assert keys == there.agree(here.public, "secret", dialed=False)
        assert len(keys) == KEYS
        seen.add(keys)
    assert len(seen) == 20


def test_what_was_told_once_gives_other_keys_when_it_is_told_again() -> None:
    """Somebody between the two repeats an old call: the answering end draws anew."""
    here = LinkKeys(secrets.token_bytes(SEED))
    answers = [LinkKeys(secrets.token_bytes(SEED)) for _ in range(2)]
    assert len({there.agree(here.public, "secret", dialed=False) for there in answers}) == 2


def test_without_the_jobs_secret_nobody_takes_an_ends_place() -> None:
    here, other = pair()
    assert here.agree(other.public, "secret", dialed=True) != other.agree(here.public, "guess", dialed=False)


@pytest.mark.parametrize("said", [None, 5, "x" * 32, b"", bytes(31), bytes(33), ZERO, ONE, [1] * 32])
def test_a_key_that_is_none_is_refused(said: Any) -> None:
    with pytest.raises(CallRefused):
        pair()[0].agree(said, "secret", dialed=True)


class Far(Service):
    """The far end of links: sends what the test says."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.got: list[Any] = []

    @streaming(None, takes={})
    async def link(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        for item in self.items:
            await stream.send(item)
        async for item in stream:
            self.got.append(item)


def connection(service: Service) -> LocalConnection:
    dispatcher = Dispatcher()
    dispatcher.add("far", service)
    return LocalConnection(dispatcher, Identity("node", "far", "far"))


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = ends()
    near.setblocking(False)
    with near, far:
        yield near, far


async def test_bytes_pass_and_an_end_ends_it(sockets: tuple[socket.socket, socket.socket]) -> None:
    near, far = sockets
    loop, service = asyncio.get_running_loop(), Far([b"from afar"])
    async with await connection(service).stream("far.link", {}) as stream:
        carrying = asyncio.ensure_future(carry_link(stream, far))
        assert await loop.sock_recv(near, 100) == b"from afar"
        await loop.sock_sendall(near, b"back")
        await until(lambda: service.got == [b"back"])
        near.close()
        await until(lambda: service.got == [b"back", None])
        carrying.cancel()


@pytest.mark.parametrize("item", ["text", 5, {"a": 1}, [b"x"], True])
async def test_what_is_no_bytes_ends_the_link(sockets: tuple[socket.socket, socket.socket], item: Any) -> None:
    near, far = sockets
    async with asyncio.timeout(10), await connection(Far([item])).stream("far.link", {}) as stream:
        await carry_link(stream, far)
    assert await asyncio.get_running_loop().sock_recv(near, 100) == b""


@pytest.mark.parametrize("item", [None, b"short", "text", ZERO])
async def test_an_answer_that_is_no_key_makes_no_link(item: Any) -> None:
    async with await connection(Far([item])).stream("far.link", {}) as stream:
        with pytest.raises(CallRefused):
            await agree_over(stream, pair()[0], "secret")


class TwoPools:
    """Two machines with a part each, which know each other by name, and connect by socket pairs."""

    #: Whether they can connect directly; the links that are made so.
    may_be_direct = False

    def __init__(self, relay: Any) -> None:
        self.direct_links: list[socket.socket] = []
        self.links: list[socket.socket] = []
        self.networks = {node: JobNetworks(node, self._no_dial, secrets.token_hex, relay) for node in ("one", "two")}
        self.keepers = [Wires(), Wires()]
        seen = {
            "one": [{"node": "one", "address": "one"}, {"node": "two@chem"}],
            "two": [{"node": "one@physics"}, {"node": "two", "address": "two"}],
        }
        for part, (node, cards) in enumerate(seen.items()):
            carded = [{**card, "network": "private", "large": False} for card in cards]
            self.networks[node].enter(start(part), carded, self.keepers[part], None, self._reach_from(node))

    async def _no_dial(self, address: str, params: dict[str, Any]) -> socket.socket:
        raise AssertionError(f"{address} is connected to")

    def _reach_from(self, node: str) -> Any:
        async def reach(parts: list[int], direct: bool) -> tuple[socket.socket, bytes]:
            if direct and not self.may_be_direct:
                raise CallRefused("the pools do not let machines connect")
            here, there = socket.socketpair()
            other, keys = ("two" if node == "one" else "one"), secrets.token_bytes(KEYS)
            room = self.networks[other].room_of(start(parts[0]))
            if room is None:
                raise CallRefused("not yet")
            room.accept(room.machine_of(0 if node == "one" else 1), there, keys, "" if direct else WORLDS)
            (self.direct_links if direct else self.links).append(here.dup())
            return here, keys

        return reach


@pytest.fixture
async def pools(relay: Any) -> AsyncIterator[TwoPools]:
    made = TwoPools(relay)
    yield made
    for part, node in enumerate(("one", "two")):
        await made.networks[node].leave(start(part))
    for end in (*made.links, *made.direct_links, *(keeper.far for keeper in made.keepers)):
        if end is not None:
            end.close()


async def packets_pass(pools: TwoPools) -> None:
    for one, other in ((0, 1), (1, 0)):
        async with asyncio.timeout(30):
            while True:
                source, target = pools.keepers[one].far, pools.keepers[other].far
                if source is not None and target is not None:
                    source.send(between(one, other, b"packet"))
                    try:
                        async with asyncio.timeout(0.1):
                            assert await heard(target) == between(one, other, b"packet")
                            break
                    except TimeoutError:
                        pass
                await asyncio.sleep(0.01)


async def test_a_network_over_two_pools_is_made_again_when_its_link_breaks(pools: TwoPools) -> None:
    await packets_pass(pools)
    pools.links[-1].shutdown(socket.SHUT_RDWR)
    await packets_pass(pools)


@pytest.mark.parametrize("ends", ["it breaks", "the agreement ends"])
async def test_a_direct_link_takes_the_place_of_the_worlds_and_they_its(
    pools: TwoPools, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr("pool.network.rooms.DIRECT_AGAIN", 0.05)
    rooms = {node: pools.networks[node].room_of(start(part)) for part, node in enumerate(("one", "two"))}

    def go_by(direct: bool) -> bool:
        names = {"one": "two@chem", "two": "one@physics"}
        ways = [(room.direct, room.by_third) for node, room in rooms.items() if room is not None]
        if direct:
            return ways == [([names["one"]], {}), ([names["two"]], {})]
        return ways == [([], {names["one"]: WORLDS}), ([], {names["two"]: WORLDS})]

    await packets_pass(pools)
    assert go_by(direct=False)
    pools.may_be_direct = True
    await until(lambda: go_by(direct=True))
    await packets_pass(pools)
    pools.may_be_direct = False
    if ends == "it breaks":
        pools.direct_links[-1].shutdown(socket.SHUT_RDWR)
    else:
        for room in rooms.values():
            assert room is not None
            room.end_direct()
    await until(lambda: go_by(direct=False))
    await packets_pass(pools)
