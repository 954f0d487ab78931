"""Long work in slices: the loop stays free, users take turns, and what holds the loop is named."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, Never

import pytest

from pool.classad import parse_expr
from pool.config.settings import Settings
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.queue import IDLE, JobQueue, QueuedCluster, QueuedJob
from pool.roles.cooperative import SLICE, WorkTurns, run_in_slices
from pool.roles.loop_watch import LONG, LoopWatch
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.rules import Rules
from pool.roles.schedd.views.listings import Listings
from pool.store import Store
from pool.wire import Call, Right, Service, Stream, method
from pool.wire.dispatch import Dispatcher, outcome
from pool.wire.identity import user_identity


def endless() -> Generator[None, None, Never]:
    number = 0
    while True:
        number += 1
        if number % 1000 == 0:
            yield


@asynccontextmanager
async def beside() -> AsyncIterator[list[int]]:
    """Counts how often the loop comes round meanwhile."""
    rounds: list[int] = []

    async def other() -> None:
        while True:
            rounds.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    yield rounds
    task.cancel()


async def test_it_returns_what_the_work_does() -> None:
    def work() -> Generator[None, None, int]:
        yield
        return 7

    assert await run_in_slices(work(), "count", WorkTurns(), "ann") == 7


async def test_others_get_their_turn_and_it_is_given_up() -> None:
    async with beside() as rounds:
        with pytest.raises(PoolError, match="cannot count: its expressions take too long"):
            await run_in_slices(endless(), "count", WorkTurns(), "ann", longest=0.05)
    assert len(rounds) > 1


async def work_through(turns: WorkTurns, who: str, things: int, order: list[str]) -> None:
    async with turns.work(who, "work") as turn:
        for _ in range(things):
            if turn.is_over:
                await turn.pause()
            until = time.perf_counter() + 1.5 * SLICE
            while time.perf_counter() < until:
                pass
            order.append(who)


async def test_users_take_turns_however_much_one_asks_for() -> None:
    turns = WorkTurns()
    order: list[str] = []
    async with beside() as rounds:
        many = [asyncio.create_task(work_through(turns, "ann", 5, order)) for _ in range(20)]
        await asyncio.sleep(0)
        await work_through(turns, "bob", 5, order)
        assert order.count("ann") <= 7, "one slice of ann's for each of bob's"
        await asyncio.gather(*many)
    assert order.count("ann") == 100
    assert len(rounds) >= 100, "the loop comes round between any two slices"


async def test_one_who_gives_up_waiting_keeps_nobody_up() -> None:
    turns = WorkTurns()
    order: list[str] = []
    first = asyncio.create_task(work_through(turns, "ann", 3, order))
    waiting = [asyncio.create_task(work_through(turns, name, 3, order)) for name in ("bob", "cid")]
    await asyncio.sleep(0)
    waiting[0].cancel()
    first.cancel()
    await waiting[1]
    assert order == ["ann", "cid", "cid", "cid"]
    assert turns.holder is None


class Room:
    """A stream's carrier that takes so many items ahead."""

    def __init__(self, items: int) -> None:
        self.items = items

    def stream_credit(self, number: int) -> int:
        return self.items

    def stream_send(self, number: int, item: object) -> int:
        self.items -= 1
        return self.items

    def stream_used(self, number: int, size: int) -> None:
        return

    def stream_finish(self, number: int) -> None:
        return

    def stream_end(self, number: int, error: BaseException | None) -> None:
        return


async def test_a_listing_gives_its_turn_up_only_where_it_has_to_wait() -> None:
    """Beside another's work each part of a listing waited for a slice of the other's, though it could be sent."""
    turns, room = WorkTurns(), Room(20)
    stream = Stream(room, 1, "schedd.query", 1000)
    other: list[str] = []
    async with turns.work("ann", "list jobs") as turn:
        beside = asyncio.create_task(work_through(turns, "bob", 1, other))
        await asyncio.sleep(0)
        for part in range(20):
            await turn.send(stream, part)
        assert not other
        waits = asyncio.create_task(turn.send(stream, 20))
        await beside
        assert other == ["bob"]
        assert not waits.done()
        room.items = 1
        stream.credited()
        await waits
        assert turns.holder is turn


#: Takes milliseconds for each job.
DEAR = 'regexp("(a+)+$", strcat(Args, "b"))'


async def queue_of(jobs: int) -> tuple[Ledger, OutsideWorld]:
    outside, queue = OutsideWorld(), JobQueue(parse_expr("0"))
    ledger = Ledger(Store.open(":memory:", inline=True), queue, outside, logging.getLogger("test"))
    cluster = QueuedCluster(1, "ann", {"Owner": "ann", "Args": "a" * 1900, "PeriodicRemove": [DEAR]})
    queue.add_cluster(cluster)
    for proc in range(jobs):
        queue.add(QueuedJob(cluster, proc, IDLE, None, None))
    return ledger, outside


class Listener:
    """A stream that takes everything."""

    has_room = True

    def __init__(self) -> None:
        self.items: list[Any] = []

    async def send(self, item: Any) -> None:
        self.items += item

    async def finish(self) -> None:
        return


@pytest.mark.parametrize("kind", ["act", "query", "periodic"])
async def test_no_expression_over_many_jobs_holds_the_loop(kind: str) -> None:
    ledger, outside = await queue_of(20)
    turns = WorkTurns()
    rules = Rules.from_settings(Settings.load(None, sets={}, environ={}))
    nothing: Any = None
    acts = JobActions(
        ledger,
        nothing,
        outside,
        turns,
        offer=lambda owner: None,
        changed=lambda owner, more: None,
        keep_checkpoint=nothing,
        waits_for_inputs=lambda job: False,
        rules=lambda: rules,
    )
    async with beside() as rounds:
        if kind == "act":
            done = await acts.act({"action": "remove", "constraint": DEAR}, "ann", "ann")
            assert done["done"] == 0
        elif kind == "query":
            listener = Listener()
            listings = Listings(ledger, outside, nothing, nothing, turns, user_name=str)
            await listings.query({"constraint": DEAR}, listener, "ann", "ann")  # type: ignore[arg-type]
            assert listener.items == []
        else:
            await acts._evaluate_clusters(list(ledger.queue.clusters.values()))
    assert len(ledger.queue.clusters[1].jobs) == 20
    assert len(rounds) > 15
    await ledger.store.close()


class Holding(Service):
    """A method that lets nobody else run."""

    @method(Right.READ)
    async def on(self, call: Call, params: dict[str, Any]) -> None:
        until = time.perf_counter() + 3 * LONG
        while time.perf_counter() < until:
            pass


async def test_who_holds_the_loop_is_named() -> None:
    told: asyncio.Future[logging.LogRecord] = asyncio.get_running_loop().create_future()
    log = logging.Logger("watched")

    def tell(record: logging.LogRecord) -> bool:
        if not told.done():
            told.set_result(record)
        return True

    log.addFilter(tell)
    dispatcher, ann, nothing = Dispatcher(), user_identity("ann"), None
    dispatcher.add("holding", Holding())
    entry = dispatcher.find("holding.on", ann, {}, streaming=False)
    watch = LoopWatch(WorkTurns(), log, time.perf_counter)
    try:
        await outcome(entry, Call(ann, nothing), {})  # type: ignore[arg-type]
        record = await asyncio.wait_for(told, 10)
    finally:
        watch.close()
    assert record.getMessage() == "the loop was held"
    assert vars(record)["who"] == "user ann"
    assert vars(record)["what"] == "holding.on"
