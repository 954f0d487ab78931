"""A share of the network: what is sent, in which time, by one and by several, with and without a deadline."""

from __future__ import annotations

import asyncio

import pytest

from pool.images import BandwidthShare
from pool.images.pacing import BURST
from pool.testing import run_virtual


async def sent(share: BandwidthShare, pieces: int, least: float = 0.0) -> float:
    """Seconds for so many pieces of 100 bytes."""
    began = asyncio.get_running_loop().time()
    for _ in range(pieces):
        await share.wait_for_bytes(100, least)
    return asyncio.get_running_loop().time() - began


def test_no_bound_takes_no_time() -> None:
    async def work() -> None:
        assert await sent(BandwidthShare(), 1000) == 0

    run_virtual(work())


def test_one_gets_the_whole_share() -> None:
    async def work() -> None:
        share = BandwidthShare(1000.0)
        assert await sent(share, 101) == pytest.approx(10.0, abs=2 * BURST)
        await asyncio.sleep(60)
        assert await sent(share, 101) == pytest.approx(10.0, abs=2 * BURST)  # a pause is no credit

    run_virtual(work())


def test_several_share_it() -> None:
    async def work() -> None:
        share = BandwidthShare(1000.0)
        times = await asyncio.gather(*(sent(share, 50) for _ in range(4)))
        assert max(times) == pytest.approx(20.0, abs=0.5)
        assert min(times) > 19

    run_virtual(work())


def test_what_has_a_deadline_is_let_through() -> None:
    async def work() -> None:
        share = BandwidthShare(1000.0)
        slow = asyncio.ensure_future(sent(share, 100))
        await asyncio.sleep(0.5)
        assert await sent(share, 100, least=10_000.0) < 1.001
        assert await slow >= 15  # those bytes count

    run_virtual(work())


def test_a_deadline_far_away_changes_nothing() -> None:
    async def work() -> None:
        assert await sent(BandwidthShare(1000.0), 100, least=10.0) == pytest.approx(10.0, abs=2 * BURST)

    run_virtual(work())
