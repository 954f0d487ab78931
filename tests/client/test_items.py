"""Items of a submit: any iterable, asynchronous ones and data frames, read and sent in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest

from pool.client.descriptions import describe
from pool.client.items import PIECE, ItemLines, comes_in_pieces, frame_of, pieces_of
from pool.client.results import Result
from pool.errors import PoolError
from pool.jobs.arguments import arguments_of
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

ROWS = [{"seed": number, "name": f"n{number % 7}"} for number in range(2 * PIECE + 17)]
COMMANDS = {
    "executable": "/bin/true",
    "arguments": "$(seed) $(name) $(Process) $(Row) $(Step) $(Cluster)",
    "queue": 2,
}


def numbered(ads: list[dict[str, Any]], cluster: int) -> list[list[str]]:
    """The arguments of each job, with the cluster's own number."""
    return [[word.replace(str(cluster), "CLUSTER") for word in arguments_of(ad)] for ad in ads]


async def queued(pool: SimPool, items: Any, **more: Any) -> list[list[str]]:
    """The arguments of the jobs that are queued for these items."""
    async with asking(pool) as user:
        heard: list[int] = []
        cluster = await user.submit({**COMMANDS, **more, "items": items}, progress=heard.append)
        jobs = pool.role("head", "schedd").queue.clusters[cluster.cluster].jobs
        assert cluster.count == len(jobs)
        assert not heard or heard[-1] == len(jobs)
        return [arguments_of(job.wire()) for job in jobs.values()]


def test_pieces_give_the_same_jobs_as_a_list(tmp_path: Path) -> None:
    """`$(Process)` and `$(Row)` go on through all pieces, and the cluster's number stands in all of them."""

    async def coming() -> AsyncIterator[dict[str, Any]]:
        for row in ROWS:
            yield row

    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            whole = await queued(pool, ROWS)
            assert len(whole) == 2 * len(ROWS)
            assert whole[-1][:5] == [str(ROWS[-1]["seed"]), ROWS[-1]["name"], str(2 * len(ROWS) - 1), "4016", "1"]
            for items in ((row for row in ROWS), coming(), pandas.DataFrame(ROWS), polars.DataFrame(ROWS), iter(ROWS)):
                found = await queued(pool, items)
                assert [words[:5] for words in found] == [words[:5] for words in whole]
                assert len({words[5] for words in found}) == 1

    run_virtual(work())


@pytest.mark.parametrize("bad", [PIECE + 3, 3])
def test_a_wrong_item_leaves_nothing_in_the_queue(tmp_path: Path, bad: int) -> None:
    def rows() -> Iterator[Any]:
        yield from ROWS[:bad]
        yield {"seed": 1, "other": 2}

    def broken() -> Iterator[Any]:
        yield from ROWS[:bad]
        raise RuntimeError("the generator's own")

    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            async with asking(pool) as user:
                with pytest.raises(PoolError, match=f"item {bad} has seed, other, the first seed, name"):
                    await user.submit({**COMMANDS, "items": rows()})
                with pytest.raises(RuntimeError, match="the generator's own"):
                    await user.submit({**COMMANDS, "items": broken()})
                with pytest.raises(PoolError, match="'items' is empty"):
                    await user.submit({**COMMANDS, "items": iter(())})
                await asyncio.sleep(1.0)
            assert pool.queued("head") == 0

    run_virtual(work())


@pytest.mark.filterwarnings("ignore:.*HTCondor makes one job of all:pool.client.DescriptionWarning")
def test_parallel_jobs_are_read_whole(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            found = await queued(pool, iter(ROWS[: PIECE + 1]), universe="parallel", machine_count=2, queue=1)
            assert [words[2] for words in found] == [str(number) for number in range(PIECE + 1)]

    run_virtual(work())


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("", "cannot be a line"),
        ("# remark", "cannot be a line"),
        (") end", "cannot be a line"),
        ("goes on\\", "cannot be a line"),
        ("two\nlines", "spans several lines"),
        ({"bad name": 1}, "cannot be the name of a queue variable"),
        ([1], "has a list in it"),
        (None, "has a NoneType in it"),
    ],
)
def test_what_cannot_be_an_item_is_refused(row: Any, said: str) -> None:
    with pytest.raises(PoolError, match=said):
        ItemLines().lines([row])


def test_what_is_read_in_pieces() -> None:
    assert not comes_in_pieces([1, 2])
    assert not comes_in_pieces(pandas.DataFrame(ROWS))
    assert comes_in_pieces(range(3))
    assert not comes_in_pieces("text")
    assert comes_in_pieces([1] * 20_001)

    async def sizes() -> list[int]:
        return [len(piece) async for piece in pieces_of(range(7), 3)]

    assert asyncio.run(sizes()) == [3, 3, 1]


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_frame_of_parameters_and_its_results(library: Any) -> None:
    """Numbers of numpy stand for themselves, and the results come back beside the parameters, as the same kind."""
    frame = library.DataFrame({"seed": [1, 2], "wall": [0.5, 0.25]})
    (draft,) = describe({"executable": "/bin/true", "arguments": "$(seed) $(wall)", "items": frame}).clusters
    assert [arguments_of(draft.attributes | delta) for delta in draft.deltas()] == [["1", "0.5"], ["2", "0.25"]]
    results = [Result(5, proc, "completed", proc, None, 1.5, 1.0, "slot", None, "") for proc in (3, 1, 0, 2)]
    found = frame_of(results, frame, None)
    assert isinstance(found, library.DataFrame)
    columns = {name: list(found[name]) for name in ("seed", "wall", "job_wall", "exit_code", "job")}
    assert columns == {
        "seed": [1, 1, 2, 2],
        "wall": [0.5, 0.5, 0.25, 0.25],
        "job_wall": [1.5] * 4,
        "exit_code": [0, 1, 2, 3],
        "job": ["5.0", "5.1", "5.2", "5.3"],
    }


def test_results_without_parameters() -> None:
    results = [Result(5, 0, "completed", 0, None, 1.5, 1.0, "slot", None, "")]
    assert list(frame_of(results, None, "polars")["job"]) == ["5.0"]
    with pytest.raises(PoolError, match="'excel' is no library"):
        frame_of(results, None, "excel")
