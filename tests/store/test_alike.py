"""Processes that are changed together are kept in one row, and are read as if each had been changed for itself."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.roles.schedd.core.store_upkeep import forget_removed
from pool.store import (
    MOST_ALIKE,
    WHOLE_CLUSTER,
    AddEvent,
    AddEvents,
    Change,
    EndProc,
    EndProcs,
    ForgetRemoved,
    NewCluster,
    RemoveCluster,
    SetProc,
    SetProcs,
    Store,
    StoreRefused,
    Trim,
)
from pool.store.apply import WITH_CLUSTER
from tests.store.test_store import events, history, states

IDLE, REMOVED, HELD = 1, 3, 5
JOBS = 12
HEAD = b"\x82\xa1a\x01\xa1p"  # a map of two, the second of which is the process's number

RANGES = st.tuples(st.integers(0, JOBS - 1), st.integers(1, JOBS)).map(lambda r: (r[0], min(r[1], JOBS - r[0])))
KINDS = st.sampled_from(["hold", "idle", "end", "end differently", "event", "of the cluster"])


def alike(kind: str, first: int, count: int, turn: int) -> list[Change]:
    """A change of processes together."""
    text, time = b"%d" % turn, float(turn)
    match kind:
        case "hold":
            return [SetProcs(1, first, count, HELD, text)]
        case "idle":
            return [SetProcs(1, first, count, IDLE, b"")]
        case "end":
            return [EndProcs(1, first, count, REMOVED, HEAD, time)]
        case "end differently":
            return [EndProcs(1, first, count, REMOVED, [b"%d" % proc for proc in range(first, first + count)], time)]
        case "event":
            return [AddEvents(1, first, count, "K", time, text)]
    return [AddEvent(1, WHOLE_CLUSTER, "W", time, text)]


def each(kind: str, first: int, count: int, turn: int) -> list[Change]:
    """The same for each of them."""
    text, time, procs = b"%d" % turn, float(turn), range(first, first + count)
    match kind:
        case "hold":
            return [SetProc(1, proc, HELD, text) for proc in procs]
        case "idle":
            return [SetProc(1, proc, IDLE, b"") for proc in procs]
        case "end":
            return [EndProc(1, proc, REMOVED, HEAD + msgpack.packb(proc), time) for proc in procs]
        case "end differently":
            return [EndProc(1, proc, REMOVED, b"%d" % proc, time) for proc in procs]
        case "event":
            return [AddEvent(1, proc, "K", time, text) for proc in procs]
    return [AddEvent(1, WHOLE_CLUSTER, "W", time, text)]


async def everything(store: Store) -> list[Any]:
    """All that can be read of a store, in pieces that begin and end in the middle of rows, too."""
    after = [await events(store, after=number) for number in range(0, store.load().next_event, 3)]
    of_one = [await events(store, 1, proc, after=after) for proc in range(JOBS) for after in (0, 5)]
    ended = await history(store)
    newest = [await history(store, limit=limit) for limit in range(1, JOBS)]
    named = [await history(store, jobs=[(1, proc)]) for proc in range(JOBS)]
    several = await history(store, jobs=[(1, proc) for proc in range(0, JOBS, 2)], owner="ann")
    every = [row async for rows in store.history(jobs=[(1, None)]) for row in rows]
    return [await states(store), after, of_one, ended, newest, named, several, every, await store.usage()]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KINDS, RANGES, st.booleans()), max_size=12), st.booleans())
async def test_they_are_read_as_if_each_was_changed_for_itself(
    changes: list[tuple[str, tuple[int, int], bool]], held: bool
) -> None:
    """Some together and some each for itself, in any order, against a store in which all are changed singly."""
    mixed, plain = Store.open(":memory:"), Store.open(":memory:")
    for store in (mixed, plain):
        await store.write(NewCluster(1, "ann", b"ad", JOBS, None, 0.0, (HELD, b"held") if held else None))
    for turn, (kind, (first, count), together) in enumerate(changes):
        refused = []
        for store, change in ((mixed, alike if together else each), (plain, each)):
            try:
                await store.write(*change(kind, first, count, turn))
                refused.append(False)
            except StoreRefused as error:
                refused.append("has ended already" in error.message)
        assert refused[0] == refused[1]
    assert await everything(mixed) == await everything(plain)
    for store in (mixed, plain):
        await store.close()


@pytest.mark.parametrize(
    "change",
    [
        SetProcs(1, 2, 2, HELD, b"x"),
        SetProcs(1, -1, 2, HELD, b"x"),
        SetProcs(1, 0, 0, HELD, b"x"),
        SetProcs(2, 0, 1, HELD, b"x"),
        SetProcs(3, 0, MOST_ALIKE + 1, HELD, b"x"),
        EndProcs(1, 2, 2, REMOVED, b"x", 1.0),
        EndProcs(3, 0, MOST_ALIKE + 1, REMOVED, b"x", 1.0),
        AddEvents(3, 0, MOST_ALIKE + 1, "K", 1.0, b"x"),
        AddEvents(3, -1, 2, "K", 1.0, b"x"),
    ],
)
async def test_more_than_there_are_is_refused(change: Change) -> None:
    store = Store.open(":memory:")
    await store.write(NewCluster(1, "ann", b"", 3, None, 0.0), NewCluster(3, "ann", b"", 5 * MOST_ALIKE, None, 0.0))
    before = await states(store)
    with pytest.raises(StoreRefused):
        await store.write(SetProc(1, 0, HELD, b"with it"), change)
    assert await states(store) == before
    await store.close()


async def test_a_change_of_many_is_a_few_rows() -> None:
    store = Store.open(":memory:")
    await store.write(NewCluster(1, "ann", b"", MOST_ALIKE, None, 0.0))
    await store.write(SetProcs(1, 0, MOST_ALIKE, HELD, b"x"), AddEvents(1, 0, MOST_ALIKE, "K", 1.0, b""))
    await store.write(SetProc(1, 500, IDLE, b""))
    count = "SELECT (SELECT count(*) FROM proc), (SELECT count(*) FROM event), (SELECT count(*) FROM history)"
    run = store._session.connection.execute
    assert run(count).fetchone() == (2, 1, 0)
    await store.write(EndProcs(1, 0, MOST_ALIKE, REMOVED, HEAD, 1.0))
    assert run(count).fetchone() == (1, 1, 1)
    assert len(await history(store)) == len(await events(store)) == MOST_ALIKE
    await store.close()


async def test_old_events_and_history_of_many_are_forgotten_row_by_row() -> None:
    store = Store.open(":memory:")
    for number in (1, 2):
        await store.write(NewCluster(number, "ann", b"", 5, None, 0.0))
        for time, first, count in ((10.0, 0, 2), (20.0, 2, 3)):
            await store.write(
                EndProcs(number, first, count, REMOVED, HEAD, number * time),
                AddEvents(number, first, count, "K", number * time, b""),
            )
        await store.write(RemoveCluster(number))
    assert await store.write(Trim(15.0)) == [2]
    assert [(row.number, row.cluster, row.proc) for row in await history(store, jobs=[(1, None)])] == [
        *((5, 1, 4), (4, 1, 3), (3, 1, 2))
    ]
    assert [row.number for row in await events(store, 1)] == [3, 4, 5]
    assert await store.write(Trim(1000.0)) == [4], "the newest of each stays"
    await store.write(NewCluster(3, "ann", b"", 1, None, 0.0), EndProc(3, 0, REMOVED, b"", 1.0))
    assert [row.number for row in await history(store)] == [11, 10, 9, 8]
    await store.close()


async def test_a_large_cluster_goes_in_steps() -> None:
    """The rest of it is in nobody's way, and goes when there is time."""
    store = Store.open(":memory:")
    jobs = 2 * WITH_CLUSTER + 10
    await store.write(NewCluster(1, "ann", b"", jobs, [b"d"] * jobs, 0.0), NewCluster(2, "ann", b"", 1, [b"d"], 0.0))
    await store.write(*(EndProc(1, proc, REMOVED, b"", 1.0) for proc in range(jobs)), SetProc(2, 0, HELD, b"x"))
    await store.write(RemoveCluster(1))
    assert [row.cluster for row in store.load().clusters] == [2]
    run = store._session.connection.execute
    assert run("SELECT count(*) FROM proc WHERE cluster = 1").fetchone() == (WITH_CLUSTER + 10,)
    assert (await store.write(ForgetRemoved()))[0]
    assert run("SELECT count(*) FROM proc WHERE cluster = 1").fetchone() == (10,)
    await forget_removed(store)
    assert run("SELECT DISTINCT cluster FROM proc UNION SELECT cluster FROM delta").fetchall() == [(2,)]
    assert run("SELECT count(*) FROM removed_cluster").fetchone() == (0,)
    assert len(await history(store)) == jobs
    await store.close()


async def test_many_clusters_go_together() -> None:
    """As each for itself: refusals are the same, and a large one among them goes in steps."""
    store = Store.open(":memory:")
    clusters = range(1, 151)
    await store.write(*(NewCluster(number, "ann", b"ad%d" % number, 2, [b"d", None], 0.0) for number in clusters))
    await store.write(*(EndProc(number, 0, REMOVED, b"", 1.0) for number in clusters if number % 2))
    with pytest.raises(StoreRefused, match="cannot remove cluster 500: it is not in the queue"):
        await store.write(*(RemoveCluster(number) for number in (*range(1, 80), 500)))
    with pytest.raises(StoreRefused, match="cannot remove cluster 7: it is not in the queue"):
        await store.write(*(RemoveCluster(number) for number in (*range(1, 80), 7)))
    jobs = 2 * WITH_CLUSTER
    await store.write(NewCluster(200, "ann", b"", jobs, None, 0.0))
    await store.write(*(SetProc(200, proc, HELD, b"x") for proc in range(jobs)))
    await store.write(*(RemoveCluster(number) for number in (*clusters[:-1], 200)))
    assert [row.cluster for row in store.load().clusters] == [150]
    run = store._session.connection.execute
    assert run("SELECT cluster, ad FROM past_cluster ORDER BY 1").fetchall() == [
        (n, b"ad%d" % n) for n in clusters[::2]
    ]
    assert run("SELECT DISTINCT cluster FROM delta").fetchall() == [(150,)]
    assert run("SELECT cluster, count(*) FROM proc GROUP BY 1").fetchall() == [(200, jobs - WITH_CLUSTER)]
    await store.close()
