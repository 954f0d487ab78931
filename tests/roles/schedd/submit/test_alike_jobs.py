"""Jobs that are changed together are as if each had been changed for itself; a kill in the middle loses nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.jobs.events import JobEvent
from pool.policy.queue import HELD, IDLE, REMOVED
from pool.roles.schedd.core import ledger as ledger_module
from pool.roles.schedd.core.intake import ClusterIntake
from pool.roles.schedd.submit import job_actions
from pool.roles.schedd.submit.job_actions import MOST_NAMED
from pool.store import MOST_ALIKE, StoreFull
from tests.roles.schedd.submit.support import Queue

#: The ad that the jobs of each cluster share, and their own differences.
CLUSTERS: dict[int, tuple[dict[str, Any], list[dict[str, Any] | None] | None]] = {
    1: ({}, None),
    2: ({}, [{"Arguments": str(proc)} for proc in range(9)]),
    3: ({"JobMaterializeMaxIdle": 2}, None),
    4: ({"JobStatus": HELD}, None),
    5: ({}, [{"NumSystemHolds": 3} if proc % 4 == 0 else {"RequestMemory": proc // 3} for proc in range(9)]),
}
JOBS = 9
#: Jobs of a large cluster, and the steps of an action on them after which a node is killed.
LARGE, SLICES = 4 * MOST_ALIKE, 2
WHICH = st.one_of(
    st.just({"all": True}),
    st.integers(1, 6).map(lambda cluster: {"ids": [[cluster]]}),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, JOBS)).map(list), min_size=1, max_size=4).map(
        lambda ids: {"ids": ids}
    ),
    st.integers(0, JOBS).map(lambda proc: {"constraint": f"ProcId >= {proc}"}),
)
ACTIONS = st.tuples(st.sampled_from(["hold", "release", "remove", "prio", "edit"]), WHICH)


def _without_turns(places: dict[tuple[int, int], Any]) -> dict[tuple[int, int], Any]:
    """Those of clusters whose jobs do not take turns: after a restart others may come first."""
    return {name: place for name, place in places.items() if name[0] != 3}


@settings(max_examples=15, deadline=None)
@given(st.lists(ACTIONS, min_size=1, max_size=8))
def test_all_is_as_if_each_was_changed_for_itself(actions: list[tuple[str, dict[str, Any]]]) -> None:
    async def play() -> list[Any]:
        queue = Queue(":memory:")
        for number, (ad, deltas) in CLUSTERS.items():
            intake = ClusterIntake({"Owner": "ann", **ad}, JOBS, differs=deltas is not None)
            if deltas is not None:
                intake.add_deltas(deltas)
            await queue.ledger.submit(number, "ann", intake)
        found: list[Any] = [await queue.act(*action) for action in actions]
        shown = await queue.shown()
        again = Queue(":memory:")
        again.ledger.store = queue.store
        await again.ledger.load()
        jobs, counts, places, *_ = await again.shown()
        assert [jobs, counts] == shown[:2], "after a restart it is as before"
        assert _without_turns(places) == _without_turns(shown[2])
        await queue.store.close()
        return [*found, *shown]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_actions, "FEW", 2)
        together = asyncio.run(play())
        patch.setattr(job_actions, "FEW", JOBS + 1)
        assert together == asyncio.run(play())


async def _hold_and_die(path: str) -> None:
    """Submit a large cluster and hold it; this process is killed when some steps of that are durable."""
    queue, told = Queue(path), list[int]()

    def kill_after_some(events: Sequence[JobEvent]) -> None:
        told.append(len(events))
        if len(told) == SLICES:
            os.kill(os.getpid(), signal.SIGKILL)

    await queue.ledger.submit(1, "ann", ClusterIntake({"Owner": "ann"}, LARGE, differs=False))
    queue.ledger.listen(kill_after_some)
    await queue.act("hold", {"all": True})


def test_a_node_that_is_killed_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each job is as before or as after, with its event and its record; the rest is done when it is asked for again."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(_hold_and_die(str(tmp_path / "queue.db")))
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    asyncio.run(_go_on(tmp_path))


async def _go_on(tmp_path: Path) -> None:
    queue = Queue(str(tmp_path / "queue.db"))
    await queue.ledger.load()
    done = await queue.told_of("HELD")
    assert SLICES <= done < LARGE
    assert [job.status for job in queue.queue.jobs()] == [HELD] * done + [IDLE] * (LARGE - done)
    acted = await queue.act("hold", {"all": True})
    assert (acted["done"], len(acted["refused"])) == (LARGE - done, min(done, MOST_NAMED))
    assert await queue.told_of("HELD") == LARGE

    told: list[int] = []

    def copy_after_some(events: Sequence[JobEvent]) -> None:
        """The files as they would be if the node was killed now."""
        told.append(len(events))
        if len(told) == SLICES:
            for file in tmp_path.glob("queue.db*"):
                shutil.copy(file, tmp_path / file.name.replace("queue", "copy"))

    queue.ledger.listen(copy_after_some)
    await queue.act("remove", {"all": True})
    await queue.store.close()
    queue = Queue(str(tmp_path / "copy.db"))
    await queue.ledger.load()
    done = await queue.told_of("ABORTED")
    assert done == sum(told[:SLICES])
    assert [row.proc async for rows in queue.store.history() for row in rows] == list(range(done))[::-1]
    assert [(job.proc, job.status) for job in queue.queue.jobs()] == [(proc, HELD) for proc in range(done, LARGE)]
    assert (await queue.act("remove", {"all": True}))["done"] == LARGE - done
    assert await queue.told_of("ABORTED") == LARGE
    rows = [row async for rows in queue.store.history() for row in rows]
    assert [(row.proc, row.status) for row in rows] == [(proc, REMOVED) for proc in range(LARGE)][::-1]
    assert not queue.queue.clusters
    await queue.store.close()


async def test_what_the_disk_refuses_is_written_as_the_jobs_are_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, jobs = Queue(":memory:"), 30
    monkeypatch.setattr(ledger_module, "RETRY", 0.0)
    await queue.ledger.submit(1, "ann", ClusterIntake({"Owner": "ann"}, jobs, differs=False))
    written, begun, answer = queue.store.begin, asyncio.Event(), asyncio.get_running_loop().create_future()

    def refuse(*changes: Any, **how: Any) -> Any:
        queue.store.begin = written  # type: ignore[method-assign]
        begun.set()
        return answer

    queue.store.begin = refuse  # type: ignore[method-assign]
    holding = asyncio.create_task(queue.act("hold", {"all": True}))
    await begun.wait()
    await queue.act("remove", {"ids": [[1, 3]]})
    await queue.act("release", {"ids": [[1, 5]]})
    answer.set_exception(StoreFull("full", retry=True))
    assert (await holding)["done"] == jobs
    again = Queue(":memory:")
    again.ledger.store = queue.store
    await again.ledger.load()
    assert {job.proc: job.status for job in again.queue.jobs()} == {
        proc: IDLE if proc == 5 else HELD for proc in range(jobs) if proc != 3
    }
    assert await queue.told_of("HELD") == jobs
    await queue.store.close()
