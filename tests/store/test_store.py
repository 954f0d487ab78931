"""The content of the store, in memory and whichever way it commits."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.store import (
    WHOLE_CLUSTER,
    AddEvent,
    Change,
    EndProc,
    EventRow,
    HistoryRow,
    NewCluster,
    RemoveCluster,
    SetMeta,
    SetProc,
    Store,
    StoreError,
    StoreRefused,
    Trim,
)
from pool.store.reading import PROCS
from pool.store.schema import MIGRATIONS, migrate
from tests.store.disks import WAYS, opened

IDLE, RUNNING, REMOVED, COMPLETED, HELD = 1, 2, 3, 4, 5


@pytest.fixture(params=["memory", *WAYS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        made = Store.open(":memory:")
    else:
        made = opened(tmp_path / "queue.db", request.param)
        await made.write(SetMeta("opened", None))
    yield made
    await made.close()


def cluster(number: int, count: int = 3, deltas: list[bytes | None] | None = None) -> NewCluster:
    return NewCluster(number, "ann", b"ad%d" % number, count, deltas, 100.0)


async def history(store: Store, **which: object) -> list[HistoryRow]:
    return [row async for rows in store.history(**which) for row in rows]  # type: ignore[arg-type]


async def states(store: Store) -> dict[tuple[int, int], tuple[int, bytes | None]]:
    """The processes whose state is kept; None is that of one that has ended."""
    rows = [row async for piece in store.procs() for row in piece]
    assert rows == sorted(rows)
    found: dict[tuple[int, int], tuple[int, bytes | None]] = {}
    for number, first, status, state, count in rows:
        for proc in range(first, first + count):
            assert (number, proc) not in found, "no two rows stand for a process"
            found[number, proc] = (status, state)
    return found


async def events(store: Store, *which: int, after: int = 0) -> list[EventRow]:
    return [row async for rows in store.events(*which, after=after) for row in rows]


async def test_an_empty_store(store: Store) -> None:
    loaded = store.load()
    assert (loaded.next_cluster, loaded.next_event, loaded.clusters, loaded.meta) == (1, 1, [], {})
    assert await store.write() == []
    assert await history(store) == []
    assert await events(store) == []
    assert await store.usage() == []


async def test_a_cluster_comes_back_as_it_was(store: Store) -> None:
    assert await store.write(cluster(1), cluster(2, 4, [b"a", None, b"", b"d"])) == [None, None]
    first, second = store.load().clusters
    assert (first.cluster, first.owner, first.ad, first.count, first.time) == (1, "ann", b"ad1", 3, 100.0)
    assert list(first.deltas()) == [None] * 3
    assert list(second.deltas()) == [b"a", None, b"", b"d"]
    assert store.load().next_cluster == 3


async def test_a_cluster_without_differences_costs_one_row(store: Store) -> None:
    await store.write(cluster(1, 100_000), cluster(2, 2500, [None] * 2500), cluster(3, 2500, [b"x"] * 2500))
    run = store._session.connection.execute
    assert run("SELECT count(*) FROM proc").fetchone() == (0,)
    assert run("SELECT cluster, count(*) FROM delta GROUP BY 1").fetchall() == [(3, 3)]
    assert list(store.load().clusters[2].deltas()) == [b"x"] * 2500


async def test_process_states(store: Store) -> None:
    await store.write(cluster(1))
    await store.write(SetProc(1, 0, RUNNING, b"run"), SetProc(1, 2, HELD, b""))
    await store.write(SetProc(1, 0, RUNNING, b"run2"))
    assert await states(store) == {(1, 0): (RUNNING, b"run2"), (1, 2): (HELD, b"")}
    await store.write(SetProc(1, 0, IDLE, b""), SetProc(1, 1, IDLE, b""))
    assert await states(store) == {(1, 2): (HELD, b"")}


async def test_a_cluster_whose_processes_are_held_from_the_beginning(store: Store) -> None:
    """One of them for a reason of its own."""
    held = NewCluster(1, "ann", b"ad", 2500, None, 100.0, (HELD, b"spooling"))
    await store.write(held, SetProc(1, 7, HELD, b"own"), cluster(2))
    expected = {(1, proc): (HELD, b"own" if proc == 7 else b"spooling") for proc in range(2500)}
    assert await states(store) == expected
    await store.write(SetProc(1, 0, IDLE, b""))
    assert (1, 0) not in await states(store)


async def test_the_states_of_many_processes_come_in_pieces(store: Store) -> None:
    """A schedd that starts takes in so many at a time."""
    await store.write(cluster(1, 2), cluster(2, 2 * PROCS), cluster(3, 2))
    await store.write(*(SetProc(2, proc, HELD, b"%d" % proc) for proc in range(2 * PROCS)), SetProc(3, 1, HELD, b"x"))
    await store.write(EndProc(1, 1, COMPLETED, b"final", 200.0))
    pieces = [piece async for piece in store.procs()]
    assert [len(piece) for piece in pieces] == [PROCS, PROCS, 2]
    rows = [row for piece in pieces for row in piece]
    assert rows[0] == (1, 1, COMPLETED, None, 1)
    assert rows[1:-1] == [(2, proc, HELD, b"%d" % proc, 1) for proc in range(2 * PROCS)]
    assert rows[-1] == (3, 1, HELD, b"x", 1)


async def test_an_ended_process_is_in_the_history_once(store: Store) -> None:
    await store.write(cluster(1), SetProc(1, 1, RUNNING, b"r"))
    await store.write(EndProc(1, 1, COMPLETED, b"final", 200.0, 1.5, 30.0), EndProc(1, 2, REMOVED, b"gone", 201.0, 0.5))
    for again in (EndProc(1, 1, COMPLETED, b"", 0.0), SetProc(1, 1, IDLE, b""), SetProc(1, 1, RUNNING, b"x")):
        with pytest.raises(StoreRefused, match=r"job 1\.1: it has ended already"):
            await store.write(again)
    assert await states(store) == {(1, 1): (COMPLETED, None), (1, 2): (REMOVED, None)}
    assert [(h.proc, h.owner, h.status, h.time, h.ad) for h in await history(store)] == [
        (2, "ann", REMOVED, 201.0, b"gone"),
        (1, "ann", COMPLETED, 200.0, b"final"),
    ]
    assert [row[:4] for row in await store.usage()] == [("ann", 1, 2.0, 30.0)]


@pytest.mark.parametrize("change", [SetProc(1, 3, RUNNING, b"x"), SetProc(1, -1, HELD, b"x"), SetProc(2, 0, IDLE, b"")])
async def test_a_job_that_is_not_queued_is_refused(store: Store, change: SetProc) -> None:
    await store.write(cluster(1))
    with pytest.raises(StoreRefused, match="not in the queue"):
        await store.write(change)
    with pytest.raises(StoreRefused, match="not in the queue"):
        await store.write(EndProc(change.cluster, change.proc + (change.proc == 0), 4, b"", 0.0))
    with pytest.raises(StoreRefused, match="not in the queue"):
        await store.write(RemoveCluster(7))


async def test_a_removed_cluster_leaves_history_and_events_and_its_id_is_never_used_again(
    store: Store,
) -> None:
    await store.write(cluster(1, 1, [b"d"]), AddEvent(1, 0, "SUBMIT", 1.0, b""), EndProc(1, 0, COMPLETED, b"f", 2.0))
    await store.write(RemoveCluster(1))
    assert store.load().clusters == []
    assert store.load().next_cluster == 2
    assert [row.ad for row in await history(store, jobs=[(1, 0)])] == [b"f"]
    assert len(await events(store, 1)) == 1
    with pytest.raises(StoreRefused, match="given before") as caught:
        await store.write(cluster(1))
    assert "2" in caught.value.hint
    await store.write(cluster(5))
    await store.write(cluster(3))
    assert store.load().next_cluster == 6


async def test_the_changes_of_a_call_happen_together_or_not(store: Store) -> None:
    await store.write(cluster(1))
    with pytest.raises(StoreRefused):
        await store.write(
            AddEvent(1, 0, "A", 1.0, b""), cluster(2), SetProc(1, 0, RUNNING, b"x"), SetProc(9, 0, 2, b"x")
        )
    loaded = store.load()
    assert [row.cluster for row in loaded.clusters] == [1]
    assert await states(store) == {}
    assert (loaded.next_cluster, loaded.next_event) == (2, 1)
    assert await store.write(AddEvent(1, 0, "B", 1.0, b"")) == [1]


async def test_one_callers_mistake_is_not_the_others(store: Store) -> None:
    await store.write(cluster(1, 100))
    outcomes = await asyncio.gather(
        *(
            store.write(SetProc(1, i if i % 3 else 1000, RUNNING, b"x"), AddEvent(1, i, "K", 1.0, b""))
            for i in range(30)
        ),
        return_exceptions=True,
    )
    assert [isinstance(outcome, StoreRefused) for outcome in outcomes] == [i % 3 == 0 for i in range(30)]
    numbers = [outcome[1] for outcome in outcomes if isinstance(outcome, list)]
    assert numbers == list(range(1, 21)), "numbers have no holes and go in order"
    assert set(await states(store)) == {(1, i) for i in range(30) if i % 3}


async def test_events_by_job_and_from_a_number_on(store: Store) -> None:
    await store.write(cluster(1), cluster(2))
    numbers = await store.write(
        AddEvent(1, WHOLE_CLUSTER, "SUBMIT", 1.0, b"s"),
        AddEvent(1, 0, "EXECUTE", 2.0, b"e"),
        AddEvent(2, 0, "EXECUTE", 3.0, b""),
        AddEvent(1, 1, "EXECUTE", 4.0, b""),
    )
    assert numbers == [1, 2, 3, 4]
    assert [row.number for row in await events(store)] == [1, 2, 3, 4]
    assert [row.number for row in await events(store, 1)] == [1, 2, 4]
    assert [row.number for row in await events(store, 1, 0)] == [1, 2]
    assert [row.number for row in await events(store, 1, after=1)] == [2, 4]
    assert (await events(store, 1))[0] == (1, 1, WHOLE_CLUSTER, "SUBMIT", 1.0, b"s")


async def test_long_answers_come_in_pieces(store: Store) -> None:
    await store.write(
        cluster(1, 1300),
        *(
            change
            for i in range(1300)
            for change in (EndProc(1, i, 4, b"%d" % i, float(i)), AddEvent(1, i, "T", 1.0, b""))
        ),
    )
    sizes = [len(rows) async for rows in store.history()]
    assert sizes == [500, 500, 300]
    assert [row.proc for row in await history(store)] == list(range(1299, -1, -1))
    assert len(await history(store, limit=700)) == 700
    assert await history(store, limit=0) == []
    assert [len(rows) async for rows in store.events(1)] == [500, 500, 300]


async def test_history_by_job_and_owner(store: Store) -> None:
    await store.write(NewCluster(1, "ann", b"", 2, None, 0.0), NewCluster(2, "bob", b"", 2, None, 0.0))
    await store.write(*(EndProc(c, p, COMPLETED, b"", 1.0, 1.0, 10.0) for c in (1, 2) for p in (0, 1)))
    assert [(row.cluster, row.proc) for row in await history(store, owner="bob")] == [(2, 1), (2, 0)]
    assert [(row.cluster, row.proc) for row in await history(store, jobs=[(1, 1), (2, None)])] == [
        (2, 1),
        (2, 0),
        (1, 1),
    ]
    assert await history(store, jobs=[]) == []
    assert [row[:4] for row in await store.usage()] == [("ann", 2, 2.0, 20.0), ("bob", 2, 2.0, 20.0)]


async def test_history_has_what_the_cluster_shares_before_and_after_it_leaves(store: Store) -> None:
    await store.write(cluster(1, 2), cluster(2, 30), EndProc(1, 0, COMPLETED, b"own", 1.0))
    await store.write(*(EndProc(2, proc, REMOVED, b"", 2.0) for proc in range(30)), RemoveCluster(2))
    for changes in ((RemoveCluster(1),), ()):
        rows = await history(store)
        assert {(row.cluster, row.shared) for row in rows} == {(1, b"ad1"), (2, b"ad2")}
        assert len({id(row.shared) for row in rows}) == 2, "one for all rows of a cluster"
        await store.write(*changes)
    assert [(row.ad, row.shared) for row in await history(store, jobs=[(1, None)])] == [(b"own", b"ad1")]


async def test_what_a_cluster_shares_goes_with_the_last_of_its_history(store: Store) -> None:
    kept = "SELECT cluster FROM past_cluster ORDER BY cluster"
    for number in (1, 2, 3):
        await store.write(cluster(number, 2))
        await store.write(*(EndProc(number, proc, COMPLETED, b"", 10.0 * number) for proc in (0, 1)))
        await store.write(RemoveCluster(number))
    run = store._session.connection.execute
    assert run(kept).fetchall() == [(1,), (2,), (3,)]
    assert await store.write(Trim(25.0, 3)) == [3]
    assert run(kept).fetchall() == [(2,), (3,)], "one row of the second is left"
    assert await store.write(Trim(25.0, 3)) == [1]
    assert run(kept).fetchall() == [(3,)]
    await store.write(cluster(4), RemoveCluster(4))
    assert run(kept).fetchall() == [(3,)], "nothing of the fourth is in the history"


async def test_rows_of_an_older_program_have_the_whole_ad(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    migrate(connection, "queue.db", MIGRATIONS[:2])
    connection.execute("INSERT INTO cluster VALUES(2, 'ann', x'82', 2, 1.0)")
    for number in (1, 2):
        connection.execute("INSERT INTO history VALUES(?1, ?1, 0, 'ann', 4, 1.0, x'81')", (number,))
    connection.execute("UPDATE meta SET value = x'33'")
    connection.close()
    store = Store.open(str(tmp_path / "queue.db"))
    found = [(row.cluster, row.ad, row.shared) for row in await history(store)]
    assert found == [(2, b"\x81", b"\x82"), (1, b"\x81", b"")]
    await store.close()


async def test_meta(store: Store) -> None:
    await store.write(SetMeta("a", b"1"), SetMeta("b", b"2"))
    await store.write(SetMeta("a", b"3"), SetMeta("b", None))
    assert store.load().meta == {"a": b"3"}
    with pytest.raises(StoreRefused):
        await store.write(SetMeta("next_cluster", b"1"))


async def test_old_history_is_forgotten_but_not_of_what_is_queued(store: Store) -> None:
    await store.write(*(cluster(number, 2) for number in (1, 2, 3)))
    for number in (1, 2, 3):
        await store.write(
            EndProc(number, 0, COMPLETED, b"", 10.0 * number), AddEvent(number, 0, "T", 10.0 * number, b"")
        )
    await store.write(RemoveCluster(1), RemoveCluster(3))
    assert await store.write(Trim(25.0, 1)) == [2]
    assert await store.write(Trim(25.0, 1)) == [0]
    assert [row.cluster for row in await history(store)] == [3, 2]
    assert await store.write(Trim(1000.0)) == [0], "the newest of each stays, so that numbers go on from it"
    assert await store.write(AddEvent(2, 0, "X", 1.0, b"")) == [4]
    assert (await store.usage())[0].jobs == 3


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.write(SetMeta("a", b""))
    with pytest.raises(StoreError, match="closed"):
        await events(store)


async def test_closing_settles_what_was_submitted(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "q"))
    waiting = [asyncio.ensure_future(store.write(cluster(1))) for _ in range(1)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*waiting) == [[None]]
    again = Store.open(str(tmp_path / "q"))
    assert len(again.load().clusters) == 1
    await again.close()


async def test_a_write_that_nobody_hurries_for_goes_along(tmp_path: Path) -> None:
    store = opened(tmp_path / "q", "loop")
    await store.write(cluster(1))
    commits = []
    store._session.connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    unhurried = asyncio.ensure_future(store.write(SetMeta("a", b"1"), within=60.0))
    await asyncio.sleep(0)
    assert not unhurried.done()
    await store.write(cluster(2))
    assert await unhurried == [None]
    assert len(commits) == 1
    alone = asyncio.ensure_future(store.write(SetMeta("b", b"2"), within=0.01))
    async with asyncio.timeout(5):
        assert await alone == [None]
    last = asyncio.ensure_future(store.write(SetMeta("c", b"3"), within=60.0))
    await asyncio.sleep(0)
    await store.close()
    assert await last == [None]
    again = Store.open(str(tmp_path / "q"))
    assert again.load().meta == {"a": b"1", "b": b"2", "c": b"3"}
    await again.close()


async def test_a_slow_disk_is_not_waited_for_on_the_loop(tmp_path: Path) -> None:
    """After one commit that took long they are made in the thread, until some there were quick again."""
    took = [0.0]
    turn = itertools.count()
    store = Store.open(str(tmp_path / "q"), ticks=lambda: took[0] * (next(turn) % 2))
    where: list[str] = []

    def commit(sql: str) -> None:
        if sql == "COMMIT":
            where.append(threading.current_thread().name)

    store._session.connection.set_trace_callback(commit)
    for took[0] in [0.0, 0.0003, 0.0003, 0.1, *[0.0003] * 30]:
        await store.write(SetMeta("a", b""))
    on_loop = [name == "MainThread" for name in where]
    assert on_loop[:5] == [False, True, True, True, False]
    assert on_loop[5:] == sorted(on_loop[5:])
    assert 5 < on_loop[4:].index(True) < 30
    await store.close()


async def test_a_cancelled_caller_does_not_undo_nor_disturb(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "q"))
    await store.write(cluster(1))
    task = asyncio.ensure_future(store.write(SetProc(1, 0, RUNNING, b"x")))
    await asyncio.sleep(0)
    other = asyncio.ensure_future(store.write(SetProc(1, 1, RUNNING, b"x")))
    await asyncio.sleep(0)
    task.cancel()
    await other
    assert set(await states(store)) == {(1, 0), (1, 1)}
    await store.close()


async def test_reading_goes_on_beside_writing(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "q"))
    await store.write(cluster(1, 2000), *(AddEvent(1, i, "A", 1.0, b"x" * 100) for i in range(2000)))
    seen = 0

    async def read() -> None:
        nonlocal seen
        async for rows in store.events(1):
            seen += len(rows)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(read())
        for i in range(100):
            group.create_task(store.write(AddEvent(1, i, "B", 2.0, b"")))
    assert seen >= 2000
    await store.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_it_agrees_with_a_dictionary(data: st.DataObject) -> None:
    """Random changes, grouped into calls that fail or not, against a model kept in plain dictionaries."""
    store = Store.open(":memory:")
    counts: dict[int, int] = {}
    procs: dict[tuple[int, int], tuple[int, bytes]] = {}
    ended: set[tuple[int, int]] = set()
    given: set[int] = set()
    number = st.integers(1, 4)
    for _ in range(data.draw(st.integers(1, 12))):
        counts2, procs2, ended2, given2 = dict(counts), dict(procs), set(ended), set(given)
        call: list[object] = []
        good = True
        for _ in range(data.draw(st.integers(1, 4))):
            c, p = data.draw(number), data.draw(st.integers(0, 3))
            verb = data.draw(st.sampled_from(["new", "set", "idle", "end", "remove"]))
            queued = c in counts2 and p < counts2[c] and (c, p) not in ended2
            if verb == "new":
                call.append(NewCluster(c, "o", b"", 3, None, 0.0))
                # An id is known to be used from the cluster itself, its history or its events.
                call.append(AddEvent(c, WHOLE_CLUSTER, "SUBMIT", 0.0, b""))
                good = good and c not in given2
                counts2[c] = 3
                given2.add(c)
            elif verb in ("set", "idle"):
                status, state = (2, b"s") if verb == "set" else (1, b"")
                call.append(SetProc(c, p, status, state))
                good = good and queued
                if verb == "set":
                    procs2[c, p] = (2, b"s")
                else:
                    procs2.pop((c, p), None)
            elif verb == "end":
                call.append(EndProc(c, p, 4, b"", 0.0))
                good = good and queued
                ended2.add((c, p))
                procs2.pop((c, p), None)
            else:
                call.append(RemoveCluster(c))
                good = good and c in counts2
                counts2.pop(c, None)
                procs2 = {key: value for key, value in procs2.items() if key[0] != c}
                ended2 = {key for key in ended2 if key[0] != c}
        try:
            await store.write(*call)  # type: ignore[arg-type]
            assert good
            counts, procs, ended, given = counts2, procs2, ended2, given2
        except StoreRefused:
            assert not good
        loaded = store.load().clusters
        assert {row.cluster: row.count for row in loaded} == counts
        found = await states(store)
        assert {name: kept for name, kept in found.items() if kept[1] is not None} == procs
        assert {name for name, kept in found.items() if kept[1] is None} == ended
    await store.close()


async def test_work_and_checkpoints_of_ended_jobs_add_up(store: Store) -> None:
    await store.write(NewCluster(1, "ann", b"", 2, None, 0.0))
    for proc in range(2):
        await store.write(EndProc(1, proc, COMPLETED, b"", 1.0, 0.0, 0.0, 100.0, 10.0, 2.5, 1000))
    (row,) = await store.usage()
    assert (row.work, row.lost, row.saving, row.saved) == (200.0, 20.0, 5.0, 2000)


async def test_many_changes_of_one_call_are_written_as_each_for_itself() -> None:
    """By statements of many rows; the tables are the same, and so are refusals."""
    chance = random.Random(7)
    changes: list[Change] = []
    left = list(range(900))
    for number in range(2000):
        proc = chance.choice(left)
        match chance.randrange(8) if number % 500 > 250 else number // 100 % 3:
            case 0 | 3:
                changes.append(SetProc(1, proc, chance.choice((IDLE, RUNNING)), chance.choice((b"", b"x%d" % number))))
            case 1 | 4 | 5:
                changes.append(AddEvent(1, proc, "K", float(number), b"%d" % number))
            case _:
                left.remove(proc)
                changes.append(EndProc(1, proc, COMPLETED, b"%d" % number, float(number), 1.0, 2.0, 3.0, 4.0, 5.0, 6))
    found = []
    for size in (1, 37, len(changes)):
        store = Store.open(":memory:")
        await store.write(cluster(1, 901))
        results = []
        for start in range(0, len(changes), size):
            results += await store.write(*changes[start : start + size])
        run = store._session.connection.execute
        tables = [sorted(run(f"SELECT * FROM {table}")) for table in ("proc", "history", "event", "usage")]
        for wrong in (EndProc(1, 901, 4, b"", 1.0), SetProc(1, 901, RUNNING, b"x"), SetProc(2, 0, IDLE, b"")):
            good = [wrong._replace(cluster=1, proc=proc) for proc in left[:30]]
            with pytest.raises(StoreRefused, match=f"{wrong.cluster}.{wrong.proc}: it is not in the queue"):
                await store.write(*good, wrong)
        assert [sorted(run(f"SELECT * FROM {table}")) for table in ("proc", "history", "event", "usage")] == tables
        found.append((results, tables))
        await store.close()
    assert found[0] == found[1] == found[2]
