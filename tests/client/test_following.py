"""Following many jobs over one stream: through restarts, with slow readers, in numbers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pool.classad import parse_expr
from pool.client import Pool, watching
from pool.client.waiting import as_completed
from pool.errors import PoolError
from pool.jobs.events import EventKind, JobEvent
from pool.outside import OutsideWorld
from pool.policy.queue import JobQueue
from pool.roles.schedd.core.intake import ClusterIntake
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.views import following
from pool.store import Store
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.client.fakes import Fakes
from tests.client.serving import serving
from tests.roles.support import QUICK, asking

DEADLINE = 20.0


async def test_a_schedd_that_is_restarted_in_order_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its streams end with "schedd.follow is served no more", and for a while no schedd runs there."""
    fakes = Fakes()
    fakes.schedd.output[1, 0] = b"one\n"
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "queue": 2})
        began, heard = asyncio.Event(), asyncio.Event()
        waiting = asyncio.ensure_future(cluster.wait(DEADLINE, progress=lambda tally: began.set()))
        kinds: list[str] = []
        pieces: list[bytes] = []

        async def listen() -> None:
            async for event in cluster.events():
                kinds.append(event.kind.name)
                heard.set()
                if len(kinds) == 3:
                    return

        async def read() -> None:
            async for piece in pool.tail(1, 0, lines=5):
                pieces.append(piece)
                heard.set()

        listening, reading = asyncio.ensure_future(listen()), asyncio.ensure_future(read())
        await began.wait()
        fakes.schedd.start((1, 0))
        while not (kinds and pieces):
            heard.clear()
            await heard.wait()
        fakes.dispatcher.remove("schedd")
        fakes.schedd.output[1, 0] += b"two\n"
        fakes.schedd.finish((1, 0))
        refused = asyncio.Event()
        find = fakes.dispatcher.find

        def not_found(*asked: Any, **how: Any) -> Any:
            refused.set()
            return find(*asked, **how)

        monkeypatch.setattr(fakes.dispatcher, "find", not_found)
        await refused.wait()  # it was asked for where no schedd runs
        assert not waiting.done()
        fakes.dispatcher.add("schedd", fakes.schedd)
        fakes.schedd.finish((1, 1))
        assert [result.ok for result in await waiting] == [True, True]
        await listening
        await asyncio.wait_for(reading, DEADLINE)
        assert kinds == ["EXECUTE", "TERMINATED", "TERMINATED"]
        assert b"".join(pieces) == b"one\ntwo\n"


async def test_what_will_never_be_answered_is_not_asked_again(tmp_path: Path) -> None:
    fakes = Fakes()
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:

        async def refuse(*_: object) -> None:
            raise PoolError("you may not")

        entry = fakes.dispatcher._methods["schedd.follow"]
        fakes.dispatcher._methods["schedd.follow"] = type(entry)(entry.name, refuse, entry.declared, entry.running)
        with pytest.raises(PoolError, match="you may not"):
            await asyncio.wait_for(anext(pool.events()), DEADLINE)


async def test_a_pool_that_is_closed_ends_what_follows(tmp_path: Path) -> None:
    fakes = Fakes()
    async with serving(fakes, tmp_path) as address:
        pool = await Pool.connect(address)
        events = pool.events()
        assert await anext(events) == []
        next_one = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(PoolError, match="was closed"):
            await next_one


def test_more_waits_than_a_connection_has_streams() -> None:
    """2,000 waits at once: all over one stream, and each ends with its job."""

    async def work() -> None:
        async with SimPool(1, settings={**QUICK, "SLOTS": "50"}) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            for number in range(2):
                await sim.add(f"m{number}", "startd", behave=lambda spec: Behaviour(5.0))
            first = await sim.submit("head", count=1000)
            second = await sim.submit("head", count=1000)
            async with asking(sim) as pool:
                waits = [pool.job(cluster, proc).wait() for cluster in (first, second) for proc in range(1000)]
                results = await asyncio.gather(*waits)
            assert [result.job for result in results] == [f"{c}.{p}" for c in (first, second) for p in range(1000)]
            assert all(result.ok for result in results)
            sim.assert_sound()

    run_virtual(work())


def test_a_slow_reader_gets_all_there_is_and_keeps_up_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_WAITING", 20)
    monkeypatch.setattr(following, "MOST_WAITING", 100)

    async def work() -> None:
        async with SimPool(2, settings={**QUICK, "SLOTS": "20"}) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            await sim.add("m1", "startd", behave=lambda spec: Behaviour(1.0))
            cluster = await sim.submit("head", count=300)
            async with asking(sim) as pool:
                slow = pool.events(cluster=cluster)
                numbers = [event["number"] for event in await anext(slow)]
                results = await pool.cluster(cluster).wait()
                assert len(results) == 300
                async for batch in slow:
                    numbers += [event["number"] for event in batch]
                    await asyncio.sleep(0.5)
                    if numbers and numbers[-1] == sim.role("head", "schedd").ledger.last_event:
                        break
            stored = [row.number async for rows in sim.role("head", "schedd").store.events(cluster) for row in rows]
            assert numbers == stored
            sim.assert_sound()

    run_virtual(work())


def test_jobs_are_told_in_the_order_in_which_they_end() -> None:
    async def work() -> None:
        async with SimPool(3, settings={**QUICK, "SLOTS": "4"}) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            await sim.add("m1", "startd", behave=lambda spec: Behaviour(40.0 - 10 * int(spec.id.split(".")[1])))
            cluster = await sim.submit("head", count=4)
            async with asking(sim) as pool:
                told = [result.proc async for result in as_completed(pool, [(cluster,)])]
            assert told == [3, 2, 1, 0]

    run_virtual(work())


@pytest.mark.parametrize("by", ["schedd.follow", "schedd.watch"])
def test_a_large_submit_is_told_though_others_act_while_it_comes_in(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs enter the queue in slices; the events of others that happen meanwhile have later numbers."""

    async def work() -> None:
        async with SimPool(4, settings={**QUICK, "SLOTS": "1"}) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            ledger = sim.role("head", "schedd").ledger
            bobs = await sim.submit("head", owner="bob")
            heard: list[int] = []

            async def listen() -> None:
                async with asking(sim, "bob") as pool, pool.streaming(by, {"after": None}) as stream:
                    if by == "schedd.follow":
                        await stream.send({"watch": 1, "ids": None, "after": 0})
                    async for item in stream:
                        pieces = [piece for _, _, piece in item] if by == "schedd.follow" else [item]
                        heard.extend(event["number"] for piece in pieces for event in piece)

            listening = asyncio.ensure_future(listen())
            await sim.run_until(lambda: bool(heard))
            real = asyncio.sleep

            async def slow_turn(seconds: float) -> None:  # a turn of the loop lasts for a second
                await real(seconds or 1.0)

            monkeypatch.setattr(asyncio, "sleep", slow_turn)
            submitting = asyncio.ensure_future(sim.submit("head", count=4001))
            for action in ("hold", "release") * 8:
                await sim.act("head", "bob", action=action, ids=[[bobs, 0]])
                await real(1.0)
            cluster = await submitting
            monkeypatch.undo()
            await real(5.0)
            listening.cancel()
            stored = [row async for rows in ledger.store.events() for row in rows]
            submitted = next(row.number for row in stored if row.cluster == cluster)
            assert submitted < stored[-1].number - 4  # others did things while it came in
            assert heard == [row.number for row in stored]
            sim.assert_sound()

    run_virtual(work())


def test_what_is_durable_is_told_though_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    """Cancelling the caller does not undo the write."""

    async def work() -> None:
        store = Store.open(str(tmp_path / "queue.db"))
        ledger = Ledger(store, JobQueue(parse_expr("0")), OutsideWorld(), logging.getLogger())
        heard: list[int | None] = []
        told = asyncio.Event()

        def hear(events: Sequence[JobEvent]) -> None:
            heard.extend(event.number for event in events)
            told.set()

        ledger.listen(hear)
        await ledger.submit(1, "alice", ClusterIntake({"Cmd": "/bin/true"}, 1, differs=False))
        told.clear()
        telling = asyncio.ensure_future(ledger.record_event(1, 0, EventKind.NOTICE, {"text": "x"}))
        await asyncio.sleep(0)
        telling.cancel()
        await asyncio.wait_for(told.wait(), DEADLINE)
        await store.close()
        assert heard == [1, 2]

    asyncio.run(work())


def test_the_first_event_after_a_watch_was_opened_is_told_at_once() -> None:
    """Events gather for a moment only behind others: a short job's end was reported ten milliseconds late."""

    async def work() -> None:
        async with SimPool(5, settings={**QUICK, "SLOTS": "1"}) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            cluster = await sim.submit("head", owner="bob")
            loop = asyncio.get_running_loop()
            sent, heard = 0.0, 0.0
            async with asking(sim, "bob") as pool, pool.streaming("schedd.follow", {}) as stream:
                await stream.send({"watch": 1, "ids": [[cluster]], "after": None})
                async for item in stream:
                    if item[0][2]:
                        heard = loop.time()
                        break
                    sent = loop.time()  # it has caught up
                    acting = asyncio.ensure_future(sim.act("head", "bob", action="hold", ids=[[cluster, 0]]))
            await acting
            assert heard - sent < following.GATHER

    run_virtual(work())
