"""The executor against a node: calls in workers that are jobs."""

from __future__ import annotations

import asyncio
import os
import runpy
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import pool
from pool.client import JobEvent, PoolError
from pool.client.executor import AsyncExecutor, Executor, JobFailed, report_progress
from pool.client.sync import SyncJob, SyncPool
from tests.conftest import REPOSITORY
from tests.e2e.support import ALL, PATIENCE, Node, nodes
from tests.ordinary_user import OrdinaryUser


@pytest.fixture(scope="module")
def node(whose_pool: object) -> Iterator[Node]:
    with nodes() as made:
        yield made.start("own", ALL, SLOTS="6").ready()


@pytest.fixture(scope="module")
def executor(node: Node, whose_pool: OrdinaryUser | None) -> Iterator[Executor]:
    with tempfile.TemporaryDirectory(prefix="e2e-tmp-") as place:
        directory = Path(place) if whose_pool is None else whose_pool.owns(Path(place))
        with Executor(2, address=node.address, directory=directory) as made:
            yield made


def slowly(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fails(text: str) -> None:
    raise LookupError(text)


def long(mark: str, until: str) -> int:
    """Notes its start, and runs until a file is there."""
    with open(mark, "a", encoding="utf-8") as file:
        file.write("began\n")
    turns = 0
    report_progress("begun")
    while not os.path.exists(until):
        time.sleep(0.01)
        turns += 1
    return turns


def _until_now(job: SyncJob) -> Iterator[JobEvent]:
    """A job's events up to its second start."""
    starts = 0
    for event in job.events():
        yield event
        starts += event.kind.name == "EXECUTE"
        if starts == 2:
            return


def until(condition: object) -> None:
    """Wait for what no event tells."""
    assert callable(condition)
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        threading.Event().wait(0.01)


def test_calls_and_their_futures(executor: Executor) -> None:
    assert pool.Executor is Executor
    assert list(executor.map(slowly, [0.02, 0.01, 0.0])) == [0.02, 0.01, 0.0]
    futures = [executor.submit(divmod, number, 3) for number in range(200)]
    assert {future.result() for future in as_completed(futures, PATIENCE)} == {divmod(n, 3) for n in range(200)}
    assert futures[0].job is not None
    assert futures[0].host is not None
    assert executor.submit(os.getpid).result(PATIENCE) != os.getpid()
    assert list(executor.map(pow, range(10), [2] * 10, chunksize=3)) == [n * n for n in range(10)]
    assert executor.counts()["workers"] <= 2
    assert "connected" in executor._repr_html_()


def test_an_exception_has_the_remote_traceback(executor: Executor) -> None:
    error = executor.submit(fails, "no such thing").exception(PATIENCE)
    assert isinstance(error, LookupError)
    assert error.args == ("no such thing",)
    assert "in fails" in str(error.__cause__)
    assert executor.submit(threading.Lock).exception(PATIENCE) is not None, "a value that cannot be pickled"
    with pytest.raises(PoolError, match="cannot send 'slowly' to a worker"):
        executor.submit(slowly, threading.Lock())


def test_a_large_array_goes_there_and_back(executor: Executor) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1_000_000, dtype="float64")
    back = executor.submit(numpy.multiply, array, 2).result(PATIENCE)
    assert numpy.array_equal(back, array * 2)
    back[0] = 1  # it may be written to


def test_lambdas_need_cloudpickle(executor: Executor) -> None:
    pytest.importorskip("cloudpickle")
    factor = 7
    assert executor.submit(lambda number: number * factor, 6).result(PATIENCE) == 42


def test_a_call_that_runs_is_cancelled(executor: Executor) -> None:
    future = executor.submit(slowly, 600.0)
    until(future.running)
    assert future.job is not None
    assert future.job in future.why()
    assert future.cancel()
    assert not wait([future], PATIENCE).not_done
    with pytest.raises(CancelledError):
        future.result()
    jobs = {name for name, *_ in executor.workers()}
    assert executor.submit(slowly, 0.0).result(PATIENCE) == 0.0
    assert jobs <= {name for name, *_ in executor.workers()}, "its worker lives on"


def test_calls_behind_a_long_one_go_to_others(executor: Executor) -> None:
    list(executor.map(slowly, [0.0] * 50))  # so that many are given ahead
    first = executor.submit(slowly, 600.0)
    others = [executor.submit(slowly, 0.0) for _ in range(50)]
    assert not wait(others, PATIENCE).not_done
    assert first.cancel()


def test_calls_behind_a_long_one_have_another_worker_started(node: Node, tmp_path: Path) -> None:
    """One worker was enough for the calls before, and has been given all of these ahead."""
    tmp_path.chmod(0o777)
    with Executor(3, address=node.address, directory=tmp_path) as own:
        for _ in range(30):
            assert own.submit(slowly, 0.0).result(PATIENCE) == 0.0
        assert own.counts()["workers"] == 1
        first = own.submit(slowly, 600.0)
        until(first.running)
        try:
            others = [own.submit(slowly, 0.0) for _ in range(20)]
            assert not wait(others, PATIENCE / 4).not_done
        finally:
            first.cancel()


def test_a_worker_that_dies_fails_its_call_alone(executor: Executor) -> None:
    futures = [executor.submit(slowly, 0.0) for _ in range(5)]
    error = executor.submit(os._exit, 3).exception(PATIENCE)
    assert isinstance(error, JobFailed)
    assert error.result is not None
    assert error.result.exit_code == 3
    assert [future.result(PATIENCE) for future in futures] == [0.0] * 5
    assert executor.submit(slowly, 0.0).result(PATIENCE) == 0.0


def test_an_evicted_call_goes_on(executor: Executor, node: Node, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    mark, end = tmp_path / "mark", tmp_path / "end"
    future = executor.submit(long, str(mark), str(end))
    until(lambda: future.progress == "begun")
    assert future.job is not None
    with SyncPool.connect(node.address) as connected:
        job = connected.job(future.job)
        assert job.vacate().done == 1
        for event in job.events():
            if event.kind.name == "EVICTED":
                checkpointed = event.data.get("checkpointed")
                break
        end.touch()
        assert future.result(PATIENCE) >= 0
        assert "Job" in job._repr_html_()
    assert checkpointed in (True, None, False)
    assert mark.read_text().count("began") == (1 if checkpointed else 2)


def test_other_commands_have_workers_of_their_own(executor: Executor, node: Node) -> None:
    small = executor.with_commands(request_memory="32MB")
    future = small.submit(slowly, 0.0)
    assert future.result(PATIENCE) == 0.0
    assert list(small.map(slowly, [0.0])) == [0.0]
    with SyncPool.connect(node.address) as connected:
        assert connected.job(str(future.job)).ad(["RequestMemory"])["RequestMemory"] == 32
        assert "slot" in connected._repr_html_()


def test_a_worker_that_cannot_be_says_why(node: Node, tmp_path: Path) -> None:
    with Executor(1, address=node.address, directory=tmp_path, python="/bin/false") as made:
        error = made.submit(slowly, 0.0).exception(PATIENCE)
        assert isinstance(error, JobFailed)
        assert "ended with status 1" in error.message
        refused = made.with_commands(universe="nowhere").submit(slowly, 0.0).exception(PATIENCE)
    assert isinstance(refused, PoolError)


def test_it_takes_nothing_after_its_end(node: Node, tmp_path: Path) -> None:
    made = Executor(1, address=node.address, directory=tmp_path)
    future = made.submit(slowly, 600.0)
    made.shutdown(cancel_futures=True)
    assert future.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        made.submit(slowly, 0.0)
    assert not list(tmp_path.iterdir()), "no files are left"
    with SyncPool.connect(node.address) as connected:
        assert not [ad for ad in connected.jobs() if "worker.py" in str(ad.get("Arguments")) and ad["JobStatus"] == 1]


async def test_it_works_with_asyncio(node: Node, tmp_path: Path) -> None:
    async with AsyncExecutor(1, address=node.address, directory=tmp_path) as made:
        assert await made.run(slowly, 0.0) == 0.0
        assert [value async for value in made.map(slowly, [0.0, 0.01])] == [0.0, 0.01]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.run(slowly, 600.0), 0.5)


def test_a_worker_connects_by_tls_where_it_does_not_see_the_socket(node: Node, tmp_path: Path) -> None:
    """Its files are transferred, and it sees its own directory and the system's."""
    how: Any = {"python": "/usr/bin/python3", "commands": {"should_transfer_files": "YES"}, "host": "127.0.0.1"}
    with (
        Executor(1, address=node.address, directory=tmp_path, **how) as made,
        SyncPool.connect(node.address) as connected,
    ):
        assert made.submit(divmod, 7, 3).result(PATIENCE) == (2, 1)
        assert made.submit(len, b"x" * 3_000_000).result(PATIENCE) == 3_000_000
        future = made.submit(time.sleep, 1.0)
        until(future.running)
        job = connected.job(str(future.job))
        assert job.vacate().done == 1
        assert future.result(PATIENCE) is None
        (evicted,) = [event for event in _until_now(job) if event.kind.name == "EVICTED"]
        assert evicted.data["checkpointed"] is True


def test_the_example(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cloudpickle")
    monkeypatch.setenv("POOLNODE_ADDRESS", node.address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runpy.run_path(str(REPOSITORY / "examples/executor/pi.py"), run_name="__main__")
    assert capsys.readouterr().out in (REPOSITORY / "examples/executor/README.md").read_text()


def test_grid_search_through_joblib(node: Node, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    import joblib
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    import pool.client.joblib_backend  # noqa: F401

    features, classes = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1.0], "kernel": ["linear", "rbf"]}
    here = GridSearchCV(SVC(), grid, cv=3).fit(features, classes)
    with joblib.parallel_backend("poolnode", n_jobs=2, max_workers=2, address=node.address, directory=tmp_path):
        there = GridSearchCV(SVC(), grid, cv=3).fit(features, classes)
    assert there.best_params_ == here.best_params_
    assert there.cv_results_["mean_test_score"].tolist() == here.cv_results_["mean_test_score"].tolist()
