"""The line a person watches."""

from __future__ import annotations

import asyncio
import io
from itertools import pairwise

import pytest

from pool.cli.progress import Board, Working, tally_line
from pool.client.tally import Tally
from pool.testing import run_virtual


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def some(done: int, running: int = 0, total: int = 10) -> Tally:
    tally = Tally((1, n) for n in range(total))
    for n in range(done + running):
        tally.apply((1, n), "EXECUTE")
    for n in range(done):
        tally.apply((1, n), "TERMINATED")
    return tally


def test_a_line_tells_counts_rate_and_what_is_left() -> None:
    line = tally_line(some(6, 2), 2.0, 3.0)
    assert line == "[############--------]  60 %  2 idle  2 running  6 done  2.0/s  2.00 s left"
    assert tally_line(some(0), None, 3.0).endswith("10 idle  0 running  0 done  3.00 s")


def test_a_line_fits_its_terminal() -> None:
    for width in (20, 40, 60, 80, 200):
        assert len(tally_line(some(6, 2), 2.0, 3.0, width)) < width


async def test_a_terminal_sees_one_line_that_is_taken_away_at_the_end() -> None:
    out = Terminal()
    board = Board(stream=out)
    board(some(1))
    board.print_note("something to keep")
    board.close()
    text = out.getvalue()
    assert text.count("\n") == 1
    assert "something to keep\n" in text
    assert text.endswith(" \r")


async def test_without_a_terminal_there_are_plain_lines_and_few() -> None:
    out = io.StringIO()
    board = Board(stream=out, every=60.0)
    for done in range(10):
        board(some(done))
    board(some(10))
    board.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert "100 %" in lines[1]
    assert "\r" not in out.getvalue()


async def test_quiet_is_quiet() -> None:
    out = Terminal()
    board = Board(stream=out, quiet=True)
    board(some(3))
    board.print_note("x")
    board.close()
    assert out.getvalue() == ""


async def test_short_work_is_not_announced_and_long_work_is() -> None:
    out = Terminal()
    with Working("thinking", stream=out):
        await asyncio.sleep(0)
    assert out.getvalue() == ""
    with Working("thinking", stream=out, after=0.0):
        await out.written.wait()
    assert out.getvalue().startswith("\rthinking |")
    assert out.getvalue().endswith(" \r")


async def test_nothing_is_announced_into_a_pipe() -> None:
    out = io.StringIO()
    with Working("thinking", stream=out, after=0.0):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert out.getvalue() == ""


def test_the_rate_of_long_jobs_is_steady() -> None:
    """Two jobs run at a time and end half a second apart every 9 s: the time left does not jump up and down."""

    async def left() -> list[float]:
        board, seen = Board(stream=io.StringIO(), quiet=True), []
        board(some(0, 2, total=60))
        for done in range(1, 60):
            await asyncio.sleep(8.5 if done % 2 else 0.5)
            board(some(done, 2 - done % 2, total=60))
            rate = board.rate()
            assert rate is not None
            seen.append((60 - done) / rate)
        return seen

    settled = run_virtual(left())[10:]
    for before, after in pairwise(settled):
        assert after < before * 1.15
    assert settled[0] == pytest.approx(49 * 4.5, rel=0.1)
