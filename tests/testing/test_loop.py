"""The clock that jumps: time costs nothing, order is always the same, and a standstill is an error."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from pool.testing import Deadlock, Livelock, run_virtual, virtual_outside


def test_a_day_passes_at_once() -> None:
    async def day() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(86400)
        return loop.time() - began

    assert run_virtual(day()) == pytest.approx(86400)


def test_timers_ring_in_order_at_their_own_time() -> None:
    async def ring() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        rung: list[tuple[str, float]] = []

        async def bell(name: str, after: float) -> None:
            await asyncio.sleep(after)
            rung.append((name, loop.time()))

        await asyncio.gather(bell("c", 3.5), bell("a", 1), bell("b", 1), bell("d", 1e6))
        return rung

    rung = run_virtual(ring())
    assert [name for name, _ in rung] == ["a", "b", "c", "d"]
    assert [when for _, when in rung] == pytest.approx([1, 1, 3.5, 1e6])


def test_a_standstill_is_named() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="wait_for_nobody"):
        run_virtual(wait_for_nobody())


def test_going_round_in_circles_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    monkeypatch.setattr("pool.testing.loop.MOST_STEPS", 1000)
    with pytest.raises(Livelock, match="spin"):
        run_virtual(spin())


def test_timeouts_work() -> None:
    async def late() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12.5):
                await asyncio.sleep(20)
        return loop.time()

    assert run_virtual(late()) == pytest.approx(12.5)


def test_threads_are_not_used() -> None:
    async def elsewhere() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    async def fails() -> None:
        await asyncio.to_thread(int, "x")

    assert run_virtual(elsewhere()) == threading.main_thread().name
    with pytest.raises(ValueError, match="x"):
        run_virtual(fails())


def test_there_is_no_real_input_and_output() -> None:
    async def listen() -> None:
        await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)

    with pytest.raises(RuntimeError, match="no real input"):
        run_virtual(listen())


def test_the_world_follows_from_the_seed() -> None:
    async def world(seed: int) -> tuple[float, float, str]:
        outside = virtual_outside(seed)
        await asyncio.sleep(60)
        return outside.wall(), outside.chance.random(), outside.secret(16)

    assert run_virtual(world(1)) == run_virtual(world(1))
    assert run_virtual(world(1))[1:] != run_virtual(world(2))[1:]
    assert len(run_virtual(world(1))[2]) == 32
