"""The network in memory: the real protocol, delays, each kind of trouble; the same seed is the same run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from pool.testing import MemoryNetwork, run_virtual
from pool.wire import (
    Call,
    CannotConnect,
    CannotListen,
    Connection,
    ConnectionLost,
    DeadlineExceeded,
    Dispatcher,
    RemoteError,
    Right,
    Service,
    Stream,
    method,
    streaming,
)


class Echo(Service):
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.callers: list[str] = []

    @method(Right.READ)
    async def say(self, call: Call, params: dict[str, Any]) -> Any:
        self.callers.append(str(call.identity))
        return params

    @method(Right.NEGOTIATE)
    async def match(self, call: Call, params: dict[str, Any]) -> None: ...

    @method(Right.ADVERTISE)
    async def hear(self, call: Call, params: dict[str, Any]) -> None:
        self.heard.append(params["n"])

    @streaming(Right.READ)
    async def count(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        for number in range(params["n"]):
            await stream.send([number, b"x" * params.get("size", 0)])


class World:
    """Two hosts, a and b; a listens."""

    def __init__(self, seed: int = 1, **how: Any) -> None:
        self.network = MemoryNetwork(random.Random(seed), **how)
        self.echo = Echo()
        self.dispatcher = Dispatcher()
        self.dispatcher.add("echo", self.echo)
        self.a = self.network.host("a", roles=["collector"])
        self.b = self.network.host("b", roles=["startd"])

    async def open(self) -> Connection:
        self.server = await self.a.listen("mem://a", self.dispatcher)
        return await self.b.connect("mem://a")


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def soon(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


@virtual
async def test_calls_take_their_time_and_know_who_calls() -> None:
    world = World(delay=(0.5, 0.5))
    link = await world.open()
    began = asyncio.get_running_loop().time()
    assert await link.call("echo.say", {"x": (1, b"2")}) == {"x": [1, b"2"]}
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.0)
    assert world.echo.callers == ["node b"]
    assert link.identity.name == "a"
    assert link.identity.roles == {"collector"}
    with pytest.raises(RemoteError, match="right to negotiate"):
        await link.call("echo.match")


@virtual
async def test_both_sides_call_on_one_connection() -> None:
    world = World()

    class Back(Service):
        @method(Right.READ)
        async def ask(self, call: Call, params: dict[str, Any]) -> Any:
            return await call.connection.call("echo.say", {"from": call.identity.name})

    world.dispatcher.add("back", Back())
    own = Dispatcher()
    own.add("echo", Echo())
    await world.a.listen("mem://a", world.dispatcher)
    link = await world.b.connect("mem://a", own)
    assert await link.call("back.ask") == {"from": "b"}


@virtual
async def test_notifications_keep_their_order() -> None:
    world = World()
    link = await world.open()
    for n in range(200):
        link.notify("echo.hear", {"n": n})
    await soon(lambda: len(world.echo.heard) == 200)
    assert world.echo.heard == list(range(200))


@virtual
async def test_what_is_sent_one_after_the_other_arrives_so() -> None:
    world = World()
    link = await world.open()
    for n in range(200):
        link.notify("echo.hear", {"n": n})
        await asyncio.sleep(0.0)
    await soon(lambda: len(world.echo.heard) == 200)
    assert world.echo.heard == list(range(200))


@virtual
async def test_a_large_stream_arrives_whole_and_in_order() -> None:
    world = World()
    link = await world.open()
    async with await link.stream("echo.count", {"n": 100, "size": 50_000}) as stream:
        got = [number async for number, _ in stream]
    assert got == list(range(100))
    await soon(lambda: world.network.in_flight == 0)


@virtual
async def test_nobody_listens() -> None:
    world = World()
    with pytest.raises(CannotConnect, match="nobody listens"):
        await world.b.connect("mem://a")
    await world.open()
    with pytest.raises(CannotListen):
        await world.a.listen("mem://a", world.dispatcher)
    await world.server.close()
    with pytest.raises(CannotConnect):
        await world.b.connect("mem://a")


@virtual
async def test_a_cut_breaks_and_refuses_until_it_heals() -> None:
    world = World()
    link = await world.open()
    world.network.cut("a", "b")
    with pytest.raises(ConnectionLost):
        await link.call("echo.say", {})
    assert link.closed.done()
    with pytest.raises(CannotConnect):
        await world.b.connect("mem://a")
    world.network.restore_links()
    assert await (await world.b.connect("mem://a")).call("echo.say", {}) == {}


@virtual
async def test_a_partition_parts_groups_only() -> None:
    world = World()
    link = await world.open()
    other = await world.network.host("c").connect("mem://a")
    world.network.partition({"a", "c"}, {"b", "d"})
    assert await other.call("echo.say", {"n": 1}) == {"n": 1}
    with pytest.raises(ConnectionLost):
        await link.call("echo.say", {})
    world.network.restore_links("b")
    assert await (await world.b.connect("mem://a")).call("echo.say", {}) == {}
    with pytest.raises(CannotConnect):
        await world.network.host("d").connect("mem://c")


@virtual
async def test_silence_tells_nobody_and_what_was_sent_arrives_when_it_heals() -> None:
    world = World()
    link = await world.open()
    world.network.drop_silently("a", "b")
    with pytest.raises(DeadlineExceeded):
        await link.call("echo.say", {}, timeout=5)
    assert not link.closed.done()
    call = asyncio.ensure_future(link.call("echo.say", {"n": 3}, timeout=100))
    await asyncio.sleep(10)
    world.network.restore_links()
    assert await call == {"n": 3}


@virtual
async def test_pieces_under_way_when_silence_ends_do_not_overtake_those_that_were_held() -> None:
    for seed in range(20):
        world = World(seed)
        link = await world.open()
        world.network.slow_down("a", "b", (0.5, 3.0))
        for number in range(100):
            if number == 40:
                world.network.drop_silently("a", "b")
            elif number == 60:
                world.network.restore_links()
            link.notify("echo.hear", {"n": number})
            await asyncio.sleep(0.1)
        heard = world.echo.heard
        await asyncio.sleep(10)
        assert heard == list(range(100)), seed
        await world.server.close()


@virtual
async def test_silence_that_lasts_ends_the_connection() -> None:
    world = World(keepalive=60)
    link = await world.open()
    world.network.drop_silently("a", "b")
    with pytest.raises(ConnectionLost):
        await link.call("echo.say", {}, timeout=1000)
    assert 59 < asyncio.get_running_loop().time() < 62
    began = asyncio.get_running_loop().time()
    with pytest.raises(CannotConnect, match="no answer"):
        await world.b.connect("mem://a")
    assert asyncio.get_running_loop().time() - began >= 9


@virtual
async def test_a_crashed_host_sends_nothing_more_and_may_come_again() -> None:
    world = World()
    link = await world.open()

    class Dies(Service):
        @method(Right.READ)
        async def now(self, call: Call, params: dict[str, Any]) -> str:
            world.network.crash("a")
            return "never"

    world.dispatcher.add("dies", Dies())
    with pytest.raises(ConnectionLost):
        await link.call("dies.now")
    with pytest.raises(CannotConnect):
        await world.b.connect("mem://a")
    again = await world.open()
    assert await again.call("echo.say", {}) == {}


@virtual
async def test_a_power_failure_is_silent() -> None:
    world = World(keepalive=60)
    link = await world.open()
    world.network.crash("a", silent=True)
    with pytest.raises(DeadlineExceeded):
        await link.call("echo.say", {}, timeout=10)
    await world.a.listen("mem://a", world.dispatcher)  # rebooted: it knows nothing of the connection
    with pytest.raises(ConnectionLost):
        await link.call("echo.say", {}, timeout=10)


@virtual
async def test_loss_breaks_connections() -> None:
    world = World(loss=0.2)
    await world.a.listen("mem://a", world.dispatcher)
    lost = 0
    for _ in range(50):
        try:
            link = await world.b.connect("mem://a")
            await link.call("echo.say", {})
            await link.close()
        except ConnectionLost:
            lost += 1
    assert 5 < lost < 45
    await soon(lambda: world.network.connections == 0)


@virtual
async def test_nothing_arrives_behind_a_piece_that_was_lost() -> None:
    for seed in range(20):
        world = World(seed, loss=0.05)
        try:
            link = await world.open()
            for number in range(100):
                link.notify("echo.hear", {"n": number})
                await asyncio.sleep(0.0001)
        except (CannotConnect, ConnectionLost):
            pass
        await asyncio.sleep(1)
        assert world.echo.heard == list(range(len(world.echo.heard))), seed


@virtual
async def test_users_come_in_on_their_own_host() -> None:
    world = World()
    await world.a.listen("mem://a", world.dispatcher)
    link = await world.network.user("jane", "a")
    await link.call("echo.say", {})
    assert world.echo.callers == ["user jane"]
    with pytest.raises(RemoteError, match="user jane may not call"):
        await link.call("echo.hear", {"n": 1})


@virtual
async def test_a_host_reaches_itself() -> None:
    world = World()
    await world.a.listen("mem://a", world.dispatcher)
    link = await world.a.connect("local:")
    assert await link.call("echo.say", {"n": 1}) == {"n": 1}


async def _busy(seed: int) -> tuple[int, int, float]:
    """Ten hosts that call each other all the time while the network fails; what came of it."""
    network = MemoryNetwork(random.Random(seed), loss=0.002)
    chance = random.Random(seed + 1)
    names = [f"h{n}" for n in range(10)]
    hosts = {}
    for name in names:
        dispatcher = Dispatcher()
        dispatcher.add("echo", Echo())
        hosts[name] = network.host(name, roles=["startd"])
        await hosts[name].listen(f"mem://{name}", dispatcher)

    async def talk(name: str) -> int:
        done = 0
        for _ in range(30):
            other = chance.choice([one for one in names if one != name])
            try:
                link = await hosts[name].connect(f"mem://{other}")
                await asyncio.gather(*(link.call("echo.say", {"n": n}, timeout=3) for n in range(3)))
                async with await link.stream("echo.count", {"n": 20}) as stream:
                    async for _ in stream:
                        done += 1
                await link.close()
            except (ConnectionLost, DeadlineExceeded):
                done += 1000
        return done

    async def trouble() -> int:
        for _ in range(20):
            await asyncio.sleep(chance.random() * 0.05)
            one, other = chance.sample(names, 2)
            chance.choice([network.cut, network.drop_silently])(one, other)
            await asyncio.sleep(chance.random() * 0.05)
            network.restore_links()
        return 0

    work: list[Awaitable[int]] = [*(talk(name) for name in names), trouble()]
    results = await asyncio.gather(*work)
    return network.fingerprint, sum(results), asyncio.get_running_loop().time()


def test_the_same_seed_is_the_same_run() -> None:
    first = run_virtual(_busy(5))
    assert first == run_virtual(_busy(5))
    assert first != run_virtual(_busy(6))
