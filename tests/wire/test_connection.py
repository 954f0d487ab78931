"""Calls, notifications and streams over each kind of connection, and everything that can befall them."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pool.wire import (
    CannotConnect,
    Connection,
    ConnectionLost,
    DeadlineExceeded,
    Dispatcher,
    LocalFault,
    RealNetwork,
    RemoteError,
    own_identity,
)
from pool.wire import endpoint as endpoint_module
from tests.wire.services import Echo, serving, soon


@asynccontextmanager
async def opened(kind: str, tmp_path: Path, own: Dispatcher | None = None) -> AsyncIterator[tuple[Echo, Connection]]:
    echo, dispatcher = serving()
    network = RealNetwork(dispatcher, own_identity("here"))
    if kind == "local":
        link = await network.connect("local:")
        yield echo, link
        await link.close()
        return
    address = f"unix://{tmp_path}/s"
    server = await network.listen(address, dispatcher)
    link = await network.connect(address, own)
    yield echo, link
    await link.close()
    await server.close()


both = pytest.mark.parametrize("kind", ["unix", "local"])


@both
async def test_a_call_brings_what_was_sent(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        sent = {"a": [1, 2.5, None, True, b"\0\xff", "ü", {"x": {}}], "big": 2**63, "path": "caf\udce9"}
        assert await link.call("echo.say", sent) == sent
        assert await link.call("echo.say", {"t": (1, (2,))}) == {"t": [1, [2]]}
        assert await link.call("echo.ping") == "pong"
        assert echo.callers[0].kind == "node"
        assert echo.callers[0].name == "here"


@both
async def test_neither_side_sees_the_others_changes(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_echo, link):
        sent = {"list": [1]}
        call = asyncio.ensure_future(link.call("echo.say", sent))
        await asyncio.sleep(0)
        sent["list"].append(2)
        got = await call
        assert got == {"list": [1]}
        assert got is not sent


@both
async def test_errors_travel_and_defects_do_not_show(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(kind, tmp_path) as (_, link):
        with pytest.raises(RemoteError) as sour:
            await link.call("echo.sour")
        error = sour.value
        assert (error.kind, error.message, error.hint, error.retry) == (
            "Sour",
            "it is sour",
            "add sugar",
            True,
        )
        with caplog.at_level(logging.CRITICAL, "pool.wire"), pytest.raises(RemoteError) as broken:
            await link.call("echo.broken")
        assert broken.value.kind == "InternalError"
        assert "secret" not in str(broken.value)


@both
@pytest.mark.parametrize(
    ("name", "kind_of_error"),
    [("nobody.say", "NoSuchRole"), ("echo.nothing", "NoSuchMethod"), ("echo.__init__", "NoSuchMethod"),
     ("echo.count", "CallRefused"), ("say", "NoSuchRole")],
)  # fmt: skip
async def test_what_is_not_declared_is_refused(kind: str, name: str, kind_of_error: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        with pytest.raises(RemoteError) as refused:
            await link.call(name)
        assert refused.value.kind == kind_of_error


@both
async def test_what_cannot_travel_is_the_callers_fault_and_nothing_breaks(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        for value in ({1, 2}, object(), 2**70, b"x" * (17 << 20)):
            with pytest.raises(LocalFault):
                await link.call("echo.say", {"v": value})
        with pytest.raises(RemoteError, match=r"the answer of echo\.odd"):
            await link.call("echo.odd")
        with pytest.raises(RemoteError, match=r"the answer of echo\.big"):
            await link.call("echo.big", {"size": 17 << 20})
        assert await link.call("echo.ping") == "pong"


@both
async def test_large_answers(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        assert len(await link.call("echo.big", {"size": 15 << 20})) == 15 << 20


@both
async def test_a_deadline_ends_the_wait_but_not_what_changes_something(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        with pytest.raises(DeadlineExceeded, match=r"echo\.slow within 0\.02 s"):
            await link.call("echo.slow", timeout=0.02)
        assert echo.running == 1
        echo.gate.set()
        await soon(lambda: echo.ended == ["slow"])
        assert await link.call("echo.ping") == "pong"


@both
async def test_what_only_waits_is_cancelled_at_its_deadline(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        call = asyncio.ensure_future(link.call("echo.patient", timeout=0.5))
        await soon(lambda: echo.running == 1)  # one that has not begun at its deadline never does
        with pytest.raises(DeadlineExceeded):
            await call
        await soon(lambda: echo.ended == ["patient cancelled"])


@both
async def test_a_method_knows_its_deadline(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        assert 6 < await link.call("echo.left", timeout=7) <= 7
        assert await link.call("echo.left", timeout=None) is None


async def test_a_listener_lives_until_it_is_closed(tmp_path: Path) -> None:
    _, dispatcher = serving()
    network = RealNetwork(dispatcher, own_identity("here"))
    await network.listen(f"unix://{tmp_path}/s", dispatcher)
    gc.collect()
    link = await network.connect(f"unix://{tmp_path}/s")
    assert await link.call("echo.ping") == "pong"
    await link.close()


@both
async def test_cancelling_a_call_travels(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        calls = [asyncio.ensure_future(link.call(f"echo.{name}")) for name in ("slow", "patient")]
        await soon(lambda: echo.running == 2)
        for call in calls:
            call.cancel()
        await soon(lambda: echo.ended == ["patient cancelled"])
        assert all(isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*calls, return_exceptions=True))
        assert echo.running == 1
        echo.gate.set()
        await soon(lambda: echo.ended == ["patient cancelled", "slow"])
        assert await link.call("echo.ping") == "pong"


@both
async def test_a_call_cancelled_before_it_begins_leaves_nothing(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        for name in ("patient", "say"):
            call = asyncio.ensure_future(link.call(f"echo.{name}"))
            await asyncio.sleep(0)
            call.cancel()
        assert await link.call("echo.ping") == "pong"
        assert echo.running == 0


@both
async def test_notifications(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        for n in range(300):
            link.notify("echo.hear", {"n": n})
        link.notify("echo.nothing")
        link.notify("echo.sour")
        await soon(lambda: len(echo.heard) == 300)
        assert echo.heard == list(range(300))


@both
async def test_many_at_once(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        answers = await asyncio.gather(*(link.call("echo.say", {"n": n}) for n in range(5000)))
        assert [answer["n"] for answer in answers] == list(range(5000))


@both
async def test_the_method_can_call_back(kind: str, tmp_path: Path) -> None:
    own_echo, own = serving()
    async with opened(kind, tmp_path, own) as (echo, link):
        assert await link.call("echo.back") == {"hello": "caller"}
        assert len((own_echo if kind == "unix" else echo).callers) == 1


# -- streams -------------------------------------------------------------------------------------------------


@both
async def test_a_stream_brings_all_and_ends(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        stream = await link.stream("echo.count", {"n": 500, "size": 10_000})
        assert [number async for number, _ in stream] == list(range(500))
        with pytest.raises(EOFError):
            await stream.receive()
        with pytest.raises(LocalFault):
            await stream.send(1)
        await stream.finish()
        stream.abort()


@both
async def test_a_stream_takes_all_and_answers(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link), await link.stream("echo.total") as stream:
        for _ in range(300):
            await stream.send(b"x" * 10_000)
        await stream.finish()
        with pytest.raises(LocalFault):
            await stream.send(b"more")
        assert await stream.receive() == 3_000_000


@both
async def test_a_stream_that_was_widened_takes_more_ahead(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        stream = await link.stream("echo.count", {"n": 40, "size": 100_000})
        stream.raise_limit(8 * 1024 * 1024)
        await soon(lambda: len(echo.heard) == 40)
        assert [number async for number, _ in stream] == list(range(40))


@both
async def test_an_error_comes_after_the_items(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        stream = await link.stream("echo.count", {"n": 3, "sour": True})
        got = []

        async def read() -> None:
            async for number, _ in stream:
                got.append(number)

        with pytest.raises(RemoteError, match="half-way"):
            await read()
        assert got == [0, 1, 2]


@both
@pytest.mark.parametrize("name", ["echo.nothing", "nobody.count", "echo.say"])
async def test_a_stream_that_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        stream = await link.stream(name)
        with pytest.raises(RemoteError):
            await stream.receive()


@both
async def test_a_slow_reader_holds_the_sender_back(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        stream = await link.stream("echo.count", {"n": 1000, "size": 10_000})
        await soon(lambda: len(echo.heard) > 40)
        for _ in range(20):
            await link.call("echo.ping")
        sent = len(echo.heard)
        assert sent < 60  # the window is 512 KiB
        for _ in range(100):
            await stream.receive()
        await soon(lambda: len(echo.heard) > sent + 80)
        stream.abort()
        await soon(lambda: echo.ended == ["count cancelled"])


@both
async def test_a_method_that_does_not_read_holds_the_caller_back(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        stream = await link.stream("echo.hang")
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await stream.send(b"x" * 50_000)
                sent += 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(), 0.1)
        assert 10 <= sent <= 12
        senders = [asyncio.ensure_future(stream.send(b"y")) for _ in range(3)]
        await asyncio.sleep(0)
        echo.gate.set()
        results = await asyncio.gather(*senders, return_exceptions=True)
        assert all(isinstance(result, LocalFault) for result in results)


@both
async def test_leaving_a_stream_early_cancels_the_method(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        async with await link.stream("echo.hang"):
            pass
        async with await link.stream("echo.count", {"n": 10**6, "size": 1000}) as stream:
            async for number, _ in stream:
                if number == 10:
                    break
        await soon(lambda: sorted(echo.ended) == ["count cancelled", "hang"] or echo.ended == ["count cancelled"])
        assert await link.call("echo.ping") == "pong"


@both
async def test_a_streams_deadline(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        stream = await link.stream("echo.hang", timeout=0.02)
        with pytest.raises(RemoteError) as late:
            await stream.receive()
        assert late.value.kind == "DeadlineExceeded"


@both
async def test_a_role_that_stops_ends_its_streams(kind: str, tmp_path: Path) -> None:
    echo, dispatcher = serving()
    network = RealNetwork(dispatcher, own_identity("here"))
    address = "local:"
    if kind == "unix":
        address = f"unix://{tmp_path}/s"
        await network.listen(address, dispatcher)
    link = await network.connect(address)
    stream = await link.stream("echo.hang")
    await link.call("echo.ping")
    dispatcher.remove("echo")
    with pytest.raises(RemoteError) as stopped:
        await stream.receive()
    assert (stopped.value.kind, stopped.value.retry) == ("NoSuchRole", True)
    with pytest.raises(RemoteError, match="no echo runs here"):
        await link.call("echo.ping")
    dispatcher.add("echo", echo)
    assert await link.call("echo.ping") == "pong"
    with pytest.raises(ValueError, match="served already"):
        dispatcher.add("echo", echo)


@both
async def test_thousands_of_streams_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (_, link):
        for _ in range(3):
            streams = [await link.stream("echo.count", {"n": 2}) for _ in range(1000)]
            for stream in streams:
                assert len([item async for item in stream]) == 2


# -- ends ----------------------------------------------------------------------------------------------------


@both
async def test_closing_ends_what_is_under_way(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (echo, link):
        call = asyncio.ensure_future(link.call("echo.slow"))
        wait = asyncio.ensure_future(link.call("echo.patient"))
        stream = await link.stream("echo.hang")
        read = asyncio.ensure_future(stream.receive())
        await soon(lambda: echo.running == 2)
        await link.call("echo.ping")
        await link.close()
        for lost in (call, wait, read):
            with pytest.raises(ConnectionLost):
                await lost
        assert link.closed.result() is None
        await soon(lambda: sorted(echo.ended) == ["hang", "patient cancelled"])
        echo.gate.set()
        await soon(lambda: "slow" in echo.ended)
        with pytest.raises(CannotConnect):
            await link.call("echo.ping")
        with pytest.raises(CannotConnect):
            await link.stream("echo.count", {"n": 1})
        link.notify("echo.hear", {"n": 1})
        await link.close()


async def test_a_server_that_closes_is_a_lost_connection(tmp_path: Path) -> None:
    echo, dispatcher = serving()
    network = RealNetwork(dispatcher, own_identity("here"))
    server = await network.listen(f"unix://{tmp_path}/s", dispatcher)
    link = await network.connect(server.address)
    call = asyncio.ensure_future(link.call("echo.slow"))
    await soon(lambda: echo.running == 1)
    await server.close()
    with pytest.raises(ConnectionLost):
        await call
    assert link.closed.done()
    with pytest.raises(CannotConnect):
        await network.connect(server.address)


async def test_calls_wait_while_the_other_side_is_full(tmp_path: Path) -> None:
    async with opened("unix", tmp_path) as (echo, link):
        many = [asyncio.ensure_future(link.call("echo.slow")) for _ in range(1024)]
        await soon(lambda: echo.running == 1024)
        with pytest.raises(DeadlineExceeded, match="no room"):
            await link.call("echo.ping", timeout=0.02)
        waiting = [asyncio.ensure_future(link.call("echo.ping")) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        echo.gate.set()
        assert await asyncio.gather(*many) == ["done"] * 1024
        assert await asyncio.gather(*waiting[1:]) == ["pong"] * 4


async def test_more_streams_than_the_other_side_takes(tmp_path: Path) -> None:
    async with opened("unix", tmp_path) as (_, link):
        streams = [await link.stream("echo.hang") for _ in range(1024)]
        with pytest.raises(LocalFault, match="open already"):
            await link.stream("echo.hang")
        streams[0].abort()
        await link.call("echo.ping")
        await link.call("echo.ping")
        await link.stream("echo.hang")


async def test_who_does_not_read_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "TOO_HIGH", 4 << 20)
    _echo, dispatcher = serving()
    network = RealNetwork(dispatcher, own_identity("here"))
    server = await network.listen(f"unix://{tmp_path}/s", dispatcher)
    link = await network.connect(server.address)
    transport = link._transport  # type: ignore[attr-defined]
    transport.pause_reading()
    calls = [asyncio.ensure_future(link.call("echo.big", {"size": 1 << 20})) for _ in range(20)]
    await soon(lambda: not server.connections)
    transport.resume_reading()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert any(isinstance(result, ConnectionLost) for result in results)
