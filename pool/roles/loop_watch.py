"""Names what holds a node's event loop: for whom, which method, and where in the program.

While one task holds the loop, no other request is answered. Long work runs in slices (`pool.roles.cooperative`), so
that no task should hold the loop; the log names those that do.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from pool.roles.cooperative import WorkTurns
from pool.wire.dispatch import outcome

#: Seconds between two looks, and for which the loop may be held without a word.
LOOK, LONG = 0.1, 0.5
#: Functions named of those that were at work, the innermost first.
NAMED = 3


class LoopWatch:
    """The watch over the loop that runs when it begins, by a thread of its own.

    Args:
        turns: who does long work.
        ticks: a clock that goes on while the loop is held.
    """

    def __init__(self, turns: WorkTurns, log: logging.Logger, ticks: Callable[[], float]) -> None:
        self._turns = turns
        self._log = log
        self._ticks = ticks
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._seen = ticks()
        self._found: dict[str, Any] | None = None
        self._closing = threading.Event()
        self._timer = self._loop.call_later(LOOK, self._tick)
        threading.Thread(target=self._watch, name="loop watch", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._timer.cancel()
        self._closing.set()

    def _tick(self) -> None:
        now, found = self._ticks(), self._found
        if found is not None:
            self._log.warning("the loop was held", extra={"seconds": round(now - self._seen, 2), **found})
            self._found = None
        self._seen = now
        self._timer = self._loop.call_later(LOOK, self._tick)

    def _watch(self) -> None:
        while not self._closing.wait(LOOK):
            if self._found is None and self._ticks() - self._seen > LONG:
                self._found = self._current_code()

    def _current_code(self) -> dict[str, Any] | None:
        """The code at work; None where none is, as on a machine that was stopped."""
        frames = list(_frames(sys._current_frames().get(self._thread)))
        own = [frame for frame in frames if str(frame.f_globals.get("__name__")).startswith("pool.")]
        if not own or asyncio.current_task(self._loop) is None:
            return None
        found = {"where": " < ".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in own[:NAMED])}
        if (turn := self._turns.holder) is not None:
            return {"who": turn.who, "what": turn.what, **found}
        for frame in own:
            if frame.f_code is outcome.__code__:
                values = frame.f_locals
                return {"who": str(values["call"].identity), "what": values["entry"].name, **found}
        return found


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
