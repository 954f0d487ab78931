"""Calls between two hosts that are lost, late, doubled, or overtake each other, while their connection stays.

    flock.network.trouble_calls("physics-head", "chem-head", CallTrouble(random.Random(1), lost=0.1, doubled=0.1))

TCP does none of this to the frames of one connection. The nodes at its ends can do all of it: one that is killed after
it has read a call, one that is stopped for a minute, a caller that repeats itself. Streams stay whole, since they break
with their connection; `MemoryNetwork.loss` breaks that.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pool.wire import ConnectionLost, DeadlineExceeded, WireConnection

#: Seconds for which a caller without a deadline waits for what never comes.
LONGEST_WAIT = 3600.0


class CallFate(StrEnum):
    """The way that one call goes."""

    PASSES = "passes"
    LOST = "lost"
    """The call never arrives."""
    UNANSWERED = "unanswered"
    """It is served, and its answer never arrives."""
    LATE = "late"
    """It arrives late: behind calls that were made after it, and maybe after its caller has given up."""
    DOUBLED = "doubled"
    """It is served twice, the second time late; the caller gets the first answer."""


@dataclass(slots=True)
class CallTrouble:
    """The chances of one pair of hosts.

    Args:
        lost, unanswered, late, doubled: probability of each fate, for each call.
        longest: seconds that a late call or the second of two is late at most.

    Attributes:
        seen: how often each fate came.
    """

    chance: random.Random
    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    longest: float = 20.0
    seen: Counter[CallFate] = field(default_factory=Counter)

    def draw(self) -> CallFate:
        """The fate of the next call."""
        point = self.chance.random()
        for fate, share in (
            (CallFate.LOST, self.lost),
            (CallFate.UNANSWERED, self.unanswered),
            (CallFate.LATE, self.late),
            (CallFate.DOUBLED, self.doubled),
        ):
            point -= share
            if point < 0:
                self.seen[fate] += 1
                return fate
        self.seen[CallFate.PASSES] += 1
        return CallFate.PASSES

    def delay(self) -> float:
        """Seconds that a call is late."""
        return self.chance.uniform(0.0, self.longest)


#: The calls by which a job's start and its end become known to the other side; `ended` brings the next start, too.
OF_CLAIMS = ("activate", "ended")


class TroubledConnection(WireConnection):
    """One end of a connection in memory.

    Args:
        trouble: gives the present trouble between its two hosts.
        under_way: the claims of which a start or an end is under way, as their callers name them, counted here.
    """

    def __init__(self, trouble: Callable[[], CallTrouble | None], under_way: Counter[str], **given: Any) -> None:
        super().__init__(**given)
        self._trouble = trouble
        self._under_way = under_way
        self._background: set[asyncio.Task[Any]] = set()

    async def call(self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0) -> Any:
        claim = params.get("claim") if params is not None and method.rpartition(".")[2] in OF_CLAIMS else None
        if not isinstance(claim, str):
            if self._trouble() is None:
                return await super().call(method, params, timeout)
            return await self._call(method, params, timeout)
        self._under_way[claim] += 1
        try:
            return await self._call(method, params, timeout)
        finally:
            self._under_way[claim] -= 1
            if not self._under_way[claim]:
                del self._under_way[claim]

    async def _call(self, method: str, params: Mapping[str, Any] | None, timeout: float | None) -> Any:
        trouble = self._trouble()
        fate = trouble.draw() if trouble is not None else CallFate.PASSES
        if trouble is None or fate is CallFate.PASSES:
            return await super().call(method, params, timeout)
        if fate is CallFate.DOUBLED:
            self._call_apart(trouble.delay(), method, params, timeout)
            return await super().call(method, params, timeout)
        waited_for: set[asyncio.Future[Any]] = {self.closed}
        late = None
        if fate is CallFate.UNANSWERED:
            self._call_apart(0.0, method, params, timeout)
        elif fate is CallFate.LATE:
            waited_for.add(late := self._call_apart(trouble.delay(), method, params, timeout))
        seconds = LONGEST_WAIT if timeout is None else timeout
        await asyncio.wait(waited_for, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if late is not None and late.done():
            return late.result()
        if self.closed.done():
            raise ConnectionLost(f"the connection to {self.address} was lost")
        raise DeadlineExceeded(f"{self.address} did not answer {method} within {seconds:g} s")

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        trouble = self._trouble()
        fate = trouble.draw() if trouble is not None else CallFate.PASSES
        if trouble is not None and fate in (CallFate.LATE, CallFate.DOUBLED):
            self._loop.call_later(trouble.delay(), super().notify, method, params)
        if fate not in (CallFate.LATE, CallFate.LOST):
            super().notify(method, params)

    def _call_apart(
        self, delay: float, method: str, params: Mapping[str, Any] | None, timeout: float | None
    ) -> asyncio.Task[Any]:
        """A call that goes its way whether anybody waits for it or not."""
        task = self._loop.create_task(self._call_after(delay, method, params, timeout))
        self._background.add(task)
        task.add_done_callback(self._is_over)
        return task

    async def _call_after(
        self, delay: float, method: str, params: Mapping[str, Any] | None, timeout: float | None
    ) -> Any:
        await asyncio.wait({self.closed}, timeout=delay)
        return await super().call(method, params, timeout)

    def _is_over(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may have waited for it
