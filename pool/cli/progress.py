"""Progress for a person who waits: one line redrawn on a terminal, plain lines elsewhere.

Work that takes less than a second is not announced (`Working`). Rates and times come from the running loop's
clock.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from pool.cli.common import on_terminal
from pool.cli.formats import short_duration

if TYPE_CHECKING:
    from pool.client.tally import Tally

SPIN = "|/-\\"
BAR = 20  # characters
WINDOW = 10.0  # seconds over which the rate is taken,
LEAST_ENDED = 20  # and longer, until so many jobs ended in it: few ends in 10 s would make the rate jump


def tally_line(tally: Tally, rate: float | None, elapsed: float, width: int | None = None) -> str:
    """`[####--]  60 %  3 idle  2 running  6 done  12.5/s  0:31 left` - what fits into `width` characters."""
    counts = tally.counts
    share = tally.ended / tally.total if tally.total else 1.0
    full = int(share * BAR)
    failed_free = [
        f"{counts[1]:,} idle",
        f"{counts[2] + counts[6]:,} running",
        *([f"{counts[7]:,} suspended"] if counts[7] else []),
        f"{counts[4]:,} done",
        *([f"{counts[3]:,} removed"] if counts[3] else []),
        *([f"{counts[5]:,} held"] if counts[5] else []),
    ]
    body = "  ".join(failed_free)
    timing = []
    if rate:
        timing.append(f"{rate:.1f}/s" if rate < 100 else f"{rate:,.0f}/s")
        left = f"{short_duration((tally.total - tally.ended) / rate)} left"
        timing.append(short_duration(elapsed) if tally.all_ended else left)
    else:
        timing.append(short_duration(elapsed))
    bar = f"[{'#' * full}{'-' * (BAR - full)}] {share * 100:3.0f} %"
    parts = [bar, body, "  ".join(timing)]
    line = "  ".join(parts)
    if width is not None and len(line) >= width:
        line = "  ".join(parts[1:])
    if width is not None and len(line) >= width:
        line = body[: width - 1]
    return line


class Board:
    """Shows how a cluster comes along. Give it the tally at each change; `tick` keeps the clock moving.

    Args:
        stream: where to draw; standard error by default.
        quiet: draw nothing at all.
        every: seconds between two plain lines where there is no terminal.
    """

    def __init__(self, *, stream: IO[str] | None = None, quiet: bool = False, every: float = 5.0) -> None:
        self._stream = stream or sys.stderr
        self._live = on_terminal(self._stream)
        self._quiet = quiet
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._drawn = float("-inf")
        self._last = ""
        self._marks: deque[tuple[float, int]] = deque()
        self._tally: Tally | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, tally: Tally) -> None:
        """Takes the tally; draws at most ten times a second (seldom where there is no terminal)."""
        self._tally = tally
        self._mark(tally)
        if self._quiet:
            return
        pause = 0.1 if self._live else self._every
        if self._loop.time() - self._drawn >= pause:
            self._draw()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._drawn + pause, self._draw)

    def print_note(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._clear()
            print(text, file=self._stream, flush=True)
            if self._live and self._tally is not None:
                self._draw()

    def close(self) -> None:
        """Takes the live line away; where there is none, the last state is printed if it was not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live:
            self._clear()
        elif not self._quiet and self._tally is not None and self._tally.all_ended:
            self._draw()
            self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _mark(self, tally: Tally) -> None:
        now = self._loop.time()
        self._marks.append((now, tally.ended))
        while len(self._marks) > 2 and (self._has_enough_without_first(now, tally.ended) or len(self._marks) > 4096):
            self._marks.popleft()

    def _has_enough_without_first(self, now: float, over: int) -> bool:
        return now - self._marks[0][0] > WINDOW and over - self._marks[1][1] >= LEAST_ENDED

    def rate(self) -> float | None:
        """Jobs that ended a second, over the last seconds or the last jobs; None while there is nothing to tell."""
        if len(self._marks) < 2:
            return None
        began, before = self._marks[0]
        seconds = self._loop.time() - began
        ended = self._marks[-1][1] - before
        return ended / seconds if seconds > 0.2 and ended > 0 else None

    def _draw(self) -> None:
        self._cancel()
        tally = self._tally
        if tally is None or self._quiet:
            return
        now = self._loop.time()
        if self._live:
            from pool.cli.tables import terminal_width

            width = terminal_width(self._stream) or 80
            line = tally_line(tally, self.rate(), now - self._began, width)
            self._stream.write(f"\r{line:<{min(len(self._last), width - 1)}}")
            if not tally.all_ended:
                self._timer = self._loop.call_later(1.0, self._draw)
        else:
            line = tally_line(tally, self.rate(), now - self._began)
            if line == self._last:
                return
            self._stream.write(line + "\n")
        self._stream.flush()
        self._drawn, self._last = now, line

    def _clear(self) -> None:
        if self._live and self._last:
            self._stream.write("\r" + " " * len(self._last) + "\r")
            self._stream.flush()
            self._last = ""


class Working:
    """`with Working("submitting 10,000 jobs"):` - after a second, says on a terminal that work goes on."""

    def __init__(self, what: str, *, stream: IO[str] | None = None, after: float = 1.0) -> None:
        self._what = what
        self._stream = stream or sys.stderr
        self._after = after
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0

    def __enter__(self) -> Self:
        if self._what and on_terminal(self._stream):
            self._timer = asyncio.get_running_loop().call_later(self._after, self._spin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._turn:
            self._stream.write("\r" + " " * (len(self._what) + 6) + "\r")
            self._stream.flush()

    def update(self, what: str) -> None:
        """Say something else from now on."""
        self._what = what.ljust(len(self._what))

    def _spin(self) -> None:
        self._stream.write(f"\r{self._what} {SPIN[self._turn % len(SPIN)]}")
        self._stream.flush()
        self._turn += 1
        self._timer = asyncio.get_running_loop().call_later(0.2, self._spin)
