"""Long work in pieces: the loop stays free, and what takes too long is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Never

import pytest

from pool.errors import PoolError
from pool.roles.pieces import in_pieces


def endless() -> Generator[None, None, Never]:
    number = 0
    while True:
        number += 1
        if number % 1000 == 0:
            yield


async def test_it_returns_what_the_work_does() -> None:
    def work() -> Generator[None, None, int]:
        yield
        return 7

    assert await in_pieces(work(), "count") == 7


async def test_others_get_their_turn_and_it_is_given_up() -> None:
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    with pytest.raises(PoolError, match="cannot count: its expressions take too long"):
        await in_pieces(endless(), "count", longest=0.05)
    beside.cancel()
    assert len(turns) > 1
