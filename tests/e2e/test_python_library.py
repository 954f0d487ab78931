"""The library against a node: without asyncio, waiting for any of many, functions as jobs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import as_completed, wait
from pathlib import Path

import pytest

from pool.client import PoolError
from pool.client.executor import JobFailed, PoolExecutor
from pool.client.sync import SyncPool
from tests.e2e.support import ALL, PATIENCE, Node, nodes


@pytest.fixture(scope="module")
def node(whose_pool: object) -> Iterator[Node]:
    with nodes() as made:
        yield made.start("own", ALL, SLOTS="2").ready()


@pytest.fixture
def executor(node: Node, tmp_path: Path) -> Iterator[PoolExecutor]:
    # The test's user may not be able to run the Python that began the tests.
    with PoolExecutor(node.address, directory=tmp_path, python=sys.executable) as made:
        yield made


def slowly(seconds: float) -> float:
    """Runs as a job."""
    time.sleep(seconds)
    return seconds


def fails(text: str) -> None:
    raise LookupError(text)


def test_without_asyncio(node: Node, tmp_path: Path) -> None:
    with SyncPool.connect(node.address) as pool:
        quick = pool.submit({"executable": "/bin/echo", "arguments": ["two words"], "output": "out"}, iwd=tmp_path)
        slow = pool.submit({"executable": "/bin/sleep", "arguments": "600"}, iwd=tmp_path)
        (first,) = pool.wait([quick, slow], count=1, timeout=PATIENCE)
        assert (first.cluster, first.ok) == (quick.cluster, True)
        assert (tmp_path / "out").read_text() == "two words\n"
        assert b"".join(quick[0].tail()) == b"two words\n"
        assert [result.job for result in pool.as_completed([quick])] == [f"{quick.cluster}.0"]
        for event in quick.events():
            if event.kind.ends:
                break
        with pytest.raises(TimeoutError):
            slow.wait(0.2)
        assert slow.remove().done == 1
        assert slow.jobs[0].wait(PATIENCE).state == "removed"
        with pytest.raises(PoolError, match="there is no job 999"):
            pool.cluster(999).wait()
        threads = [threading.Thread(target=quick.wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    with pytest.raises(PoolError, match="the pool was closed"):
        pool.jobs()


def test_functions_run_as_jobs(executor: PoolExecutor) -> None:
    assert list(executor.map(slowly, [0.02, 0.01, 0.0])) == [0.02, 0.01, 0.0]
    futures = [executor.submit(divmod, number, 3) for number in range(5)]
    assert {future.result() for future in as_completed(futures, PATIENCE)} == {divmod(n, 3) for n in range(5)}
    assert executor.submit(os.getpid).result(PATIENCE) != os.getpid()


def test_what_a_function_raises_is_raised_here(executor: PoolExecutor) -> None:
    error = executor.submit(fails, "no such thing").exception(PATIENCE)
    assert isinstance(error, LookupError)
    assert error.args == ("no such thing",)
    assert "in fails" in error.__notes__[0]
    error = executor.submit(threading.Lock).exception(PATIENCE)
    assert isinstance(error, RuntimeError), "a value that cannot be pickled"


def test_a_job_that_brings_no_result_says_why(executor: PoolExecutor) -> None:
    error = executor.submit(os._exit, 3).exception(PATIENCE)
    assert isinstance(error, JobFailed)
    assert error.result.exit_code == 3


def test_a_cancelled_future_removes_its_job(executor: PoolExecutor, node: Node) -> None:
    future = executor.submit(slowly, 600.0)
    other = executor.submit(slowly, 0.0)
    assert other.result(PATIENCE) == 0.0
    assert future.cancel()
    assert not wait([future], PATIENCE).not_done


def test_lambdas_need_cloudpickle(executor: PoolExecutor) -> None:
    pytest.importorskip("cloudpickle")
    factor = 7
    assert executor.submit(lambda number: number * factor, 6).result(PATIENCE) == 42


def test_it_takes_nothing_after_its_end(node: Node, tmp_path: Path) -> None:
    made = PoolExecutor(node.address, directory=tmp_path)
    future = made.submit(slowly, 600.0)
    made.shutdown(cancel_futures=True)
    assert future.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        made.submit(slowly, 0.0)
    with SyncPool.connect(node.address) as pool:
        assert not [ad for ad in pool.jobs() if "run_call" in str(ad.get("Arguments")) and ad["JobStatus"] == 1]
