"""Streams that pass through a world: what they may carry ahead of their readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.roles.world.relay import AHEAD, PART, ReadAhead, join_streams, passes
from pool.wire import Call, Connection, Dispatcher, RealNetwork, Right, Service, Stream, method, own_identity, streaming
from tests.wire.services import Echo, serving, soon

#: Items of this many bytes; an ordinary window holds 5 of them, all windows of a way 20.
SIZE = 100_000
MANY = 60


class Gateway(Service):
    """Passes streams on to another node."""

    def __init__(self, far: Connection, ahead: ReadAhead) -> None:
        self.far = far
        self.ahead = ahead

    @method(None)
    async def ping(self, call: Call, params: dict[str, Any]) -> str:
        return "pong"

    @streaming(Right.READ)
    async def count(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await join_streams(stream, await self.far.stream("echo.count", params), self.ahead)

    @streaming(Right.READ)
    async def hang(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await join_streams(stream, await self.far.stream("echo.hang", params), self.ahead)

    @streaming(Right.READ)
    async def total(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await join_streams(stream, await self.far.stream("echo.total", params), self.ahead)


@contextlib.asynccontextmanager
async def chain(directory: Path, ahead: ReadAhead) -> AsyncIterator[tuple[Echo, Connection]]:
    """A node whose calls are passed on to a second one by a third."""
    echo, dispatcher = serving()
    async with contextlib.AsyncExitStack() as stack:
        network = RealNetwork(dispatcher, own_identity("here"))
        far_address, near_address = f"unix://{directory}/far", f"unix://{directory}/near"
        stack.push_async_callback((await network.listen(far_address, dispatcher)).close)
        far = await network.connect(far_address)
        stack.push_async_callback(far.close)
        between = Dispatcher()
        between.add("gateway", Gateway(far, ahead))
        stack.push_async_callback((await network.listen(near_address, between)).close)
        near = await network.connect(near_address)
        stack.push_async_callback(near.close)
        yield echo, near


@pytest.mark.parametrize("wide", [True, False])
async def test_bytes_run_ahead_of_a_reader_behind_the_gateway(wide: bool, tmp_path: Path) -> None:
    async with chain(tmp_path, ReadAhead(1 << 30 if wide else 0)) as (_, near):
        stream = await near.stream("gateway.hang")  # it reads nothing
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(MANY):
                await stream.send(b"x" * SIZE)
                sent += 1

        sending = asyncio.create_task(send())
        await soon(lambda: sent == MANY if wide else sent > 10)
        for _ in range(30):
            await near.call("gateway.ping")
        assert (sent == MANY) is wide
        stream.abort()
        await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.parametrize("wide", [True, False])
async def test_bytes_run_ahead_of_a_reader_before_the_gateway(wide: bool, tmp_path: Path) -> None:
    async with chain(tmp_path, ReadAhead(1 << 30 if wide else 0)) as (echo, near):
        stream = await near.stream("gateway.count", {"n": MANY, "size": SIZE})
        await soon(lambda: len(echo.heard) == MANY if wide else len(echo.heard) > 10)
        for _ in range(30):
            await near.call("gateway.ping")
        assert (len(echo.heard) == MANY) is wide
        assert [number async for number, _ in stream] == list(range(MANY))


async def test_a_stream_gives_its_part_back_when_it_ends(tmp_path: Path) -> None:
    ahead = ReadAhead(4 * AHEAD * PART)
    async with chain(tmp_path, ahead) as (_, near):
        first = await near.stream("gateway.total")
        second = await near.stream("gateway.hang")
        await soon(lambda: ahead.left == 4 * AHEAD * PART - 4 * AHEAD)
        await first.send(b"word")
        await first.finish()
        assert [total async for total in first] == [4]
        await soon(lambda: ahead.left == 4 * AHEAD * PART - 2 * AHEAD)
        second.abort()
        await soon(lambda: ahead.left == 4 * AHEAD * PART)


async def test_many_streams_never_get_more_than_there_is(tmp_path: Path) -> None:
    """Each gets less than the one before it, down to an ordinary window."""
    ahead = ReadAhead(PART * 10_000)
    async with chain(tmp_path, ahead) as (_, near):
        streams = [await near.stream("gateway.total") for _ in range(400)]
        for stream in streams:
            await stream.send(b"word")
            await stream.finish()
        assert [[total async for total in stream] for stream in streams] == [[4]] * 400
        await soon(lambda: ahead.left == PART * 10_000)

        idle = [await near.stream("gateway.hang") for _ in range(400)]
        await soon(lambda: ahead.left < PART * 10)
        assert ahead.left >= 0
        for stream in idle:
            stream.abort()
        await soon(lambda: ahead.left == PART * 10_000)


@pytest.mark.parametrize(("calls", "streams"), [(("ping",), ()), ((), ("count",)), (("renew",), ("renew",))])
def test_no_method_is_replaced_by_one_that_passes_a_call_on(calls: tuple[str, ...], streams: tuple[str, ...]) -> None:
    class Passing(Gateway):
        pass

    with pytest.raises(TypeError, match="is there already, and would not be called"):
        passes(Right.READ, calls, streams)(Passing)


def test_methods_that_pass_calls_on_are_declared() -> None:
    class Passing(Gateway):
        pass

    assert passes(Right.READ, ("renew",), ("tail",))(Passing) is Passing
    assert {"renew", "tail"} <= set(vars(Passing))
