"""The watch over starts that are under way: what it says of one, and when, and that it keeps nothing of those over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from pool.starter.keeper import NativeKeepers
from pool.starter.slow_starts import LOOK, SLOW, StartWatch
from pool.testing import run_virtual
from tests.starter.support import shell, soon

MOST = 60.0


class Start:
    """Stands for a keeper whose job is being started."""

    def __init__(self, number: int) -> None:
        self.number = number


class Said:
    """A watch, and what it said of whom at which second."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.told: list[tuple[str, int, float]] = []
        self.watch = StartWatch(MOST, slow=self._of("slow"), late=self._of("late"), over=self._of("over"))

    def _of(self, what: str) -> Any:
        return lambda keeper: self.told.append((what, keeper.number, self.loop.time() - self.began))

    def at(self, what: str, number: int) -> list[float]:
        return [when for told, who, when in self.told if (told, who) == (what, number)]


def test_a_start_is_slow_then_late_and_its_lease_ends() -> None:
    async def work() -> None:
        said = Said()
        for number, lease in ((1, None), (2, 20.0), (3, 20.0), (4, 20.0)):
            start: Any = Start(number)
            said.watch.add(start, lease)
            if number != 2:  # which waits to be sent
                said.watch.sent(start)
            if number == 4:
                said.watch.drop(start)
            if number == 3:
                third = start
        await asyncio.sleep(15)
        said.watch.renew(third, 20.0)
        await asyncio.sleep(100)
        sent = [(what, number, due) for what, due in (("slow", SLOW), ("late", MOST)) for number in (1, 3)]
        for what, number, due in (*sent, ("over", 2, 20.0), ("over", 3, 35.0)):
            (when,) = said.at(what, number)
            assert due <= when <= due + LOOK, (what, number, when)
        assert len(said.told) == 6, said.told
        said.watch.close()

    run_virtual(work())


def test_one_that_is_sent_again_has_its_time_anew() -> None:
    async def work() -> None:
        said = Said()
        start: Any = Start(1)
        said.watch.add(start, None)
        said.watch.sent(start)
        await asyncio.sleep(SLOW - 1)
        said.watch.sent(start)
        await asyncio.sleep(MOST - 1)
        assert len(said.at("slow", 1)) == 1
        assert not said.at("late", 1)
        await asyncio.sleep(SLOW)
        assert len(said.at("late", 1)) == 1
        said.watch.drop(start)
        await asyncio.sleep(1)
        said.watch.add(start, None)
        said.watch.sent(start)
        await asyncio.sleep(SLOW + 1)
        assert len(said.at("slow", 1)) == 2, "it looks again after a time without starts"
        said.watch.close()

    run_virtual(work())


async def test_nothing_of_a_start_is_kept_when_it_is_over(best: NativeKeepers, scratch: Any) -> None:
    """A node that runs many short jobs has no more memory for each of the last minute."""
    kept: list[weakref.ref[Any]] = []
    for number in range(3):
        keeper = await soon(best.start(shell(scratch, "exit 0", id=f"{number}.0", claim={"claim": "1"})))
        await soon(keeper.ended)
        await keeper.forget()
        kept.append(weakref.ref(keeper.ended))
        del keeper
    gc.collect()
    assert [ref() for ref in kept] == [None, None, None]
