"""Scratch directories of ended claims: removed one by one, and never found by the next job of a slot."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.roles.cooperative import SLICE, WorkTurns
from pool.roles.startd.claims.vacated_scratch import VacatedScratch
from pool.starter import scratch

MANY = 20


def _spawn(work: Coroutine[Any, Any, Any], name: str, *, alone: bool = False) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work, name=name)


def removals(execute: Path, is_over: Callable[[], bool] = lambda: False) -> VacatedScratch:
    return VacatedScratch(execute, WorkTurns(), _spawn, is_over, logging.getLogger("test"))


def slots(execute: Path, count: int = MANY) -> list[str]:
    names = [f"slot1_{number}" for number in range(count)]
    for name in names:
        (execute / name).mkdir(mode=0o700)
    return names


async def turns_until(done: Callable[[], bool]) -> int:
    """The turns of the loop until something is so."""
    count = 0
    async with asyncio.timeout(20):
        while not done():
            count += 1
            await asyncio.sleep(0)
    return count


async def test_a_turn_of_the_loop_removes_few_where_the_file_system_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = slots(tmp_path)
    loop, held_up, discard = asyncio.get_running_loop(), [0.0], scratch.discard
    monkeypatch.setattr(loop, "time", lambda: held_up[0])

    def slow(path: Path) -> None:
        held_up[0] += 1.5 * SLICE
        discard(path)

    monkeypatch.setattr(scratch, "discard", slow)
    vacated = removals(tmp_path)
    for name in names:
        vacated.leave(name)
    assert len(list(tmp_path.iterdir())) == MANY  # the end of a claim waits for none of them
    assert await turns_until(lambda: not list(tmp_path.iterdir())) >= MANY


async def test_the_next_job_finds_nothing_of_the_last_claim(tmp_path: Path) -> None:
    first, *others = slots(tmp_path)
    (tmp_path / first / "secret").write_text("another user's")
    vacated = removals(tmp_path)
    vacated.leave(first)
    vacated.remove_now(first)
    assert not (tmp_path / first).exists()
    (tmp_path / first).mkdir()  # the next job's
    for name in others:
        vacated.leave(name)
    await turns_until(lambda: not any((tmp_path / name).exists() for name in others))
    assert (tmp_path / first).exists()
    vacated.remove_now(first)
    assert (tmp_path / first).exists()


async def test_what_could_not_be_removed_is_in_no_other_directorys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no job begins in it."""
    first, *others = slots(tmp_path)
    discard = scratch.discard

    def fails(path: Path) -> None:
        if path.name == first:
            raise OSError("no more space")
        discard(path)

    monkeypatch.setattr(scratch, "discard", fails)
    vacated = removals(tmp_path)
    for name in (first, *others):
        vacated.leave(name)
    await turns_until(lambda: len(list(tmp_path.iterdir())) == 1)
    with pytest.raises(OSError, match="no more space"):
        vacated.remove_now(first)
    monkeypatch.setattr(scratch, "discard", discard)
    vacated.remove_now(first)
    assert not list(tmp_path.iterdir())


async def test_a_role_that_is_over_leaves_them_to_the_next(tmp_path: Path) -> None:
    names = slots(tmp_path)
    over = False
    vacated = removals(tmp_path, lambda: over)
    vacated.leave(names[0])
    over = True
    await turns_until(lambda: len(asyncio.all_tasks()) == 1)
    assert (tmp_path / names[0]).exists()
