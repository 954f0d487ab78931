"""Calls of Python functions through `pool.Executor`, beside the executors that people use today.

Dask `distributed` and Parsl are peers where they are installed (`pip install distributed parsl`); the row's note says
where one is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy

from pool.client.executor import Executor
from tests.benchmarks.nodes import Node, personal_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

WORKERS = 8
TURNS = 3


def _nothing(_: int) -> None:
    return None


def _same(array: Any) -> Any:
    return array


@benchmark("calls")
async def calls(effort: Effort) -> list[Row]:
    """10,000 empty calls over 8 workers, an array of 100 MB there and back, and a fresh executor's first result."""
    async with personal_node(slots=WORKERS) as node:
        return await asyncio.to_thread(_rows, node, effort)


def _rows(node: Node, effort: Effort) -> list[Row]:
    number, size = effort.of(10_000, least=500), effort.of(100, least=10)
    array = numpy.arange(size * 125_000, dtype=numpy.int64)
    ours, peers = list[float](), list[float]()
    there, peer_there = list[float](), list[float]()
    with Executor(WORKERS, address=node.address) as executor, ProcessPoolExecutor(WORKERS) as peer:
        for one in (executor, peer):
            list(one.map(_nothing, range(WORKERS * 4)))
        for _ in range(TURNS):
            ours.append(_seconds(lambda: list(executor.map(_nothing, range(number)))))
            peers.append(_seconds(lambda: list(peer.map(_nothing, range(number)))))
            there.append(_seconds(lambda: executor.submit(_same, array).result()))
            peer_there.append(_seconds(lambda: peer.submit(_same, array).result()))
    middle = statistics.median
    name = f"{number:,} empty calls, {WORKERS} workers"
    rows = [
        Row(name, middle(ours), "s", Goal("at most", 0.5, "ratio"), "ProcessPoolExecutor", middle(peers)),
        Row(
            f"an array of {size} MB there and back",
            middle(there),
            "s",
            Goal("at most", 1.0, "ratio"),
            "ProcessPoolExecutor",
            middle(peer_there),
        ),
        _first_result(node),
    ]
    third = Goal("at most", 1 / 3, "ratio")
    for peer_name, module, begin in (("Dask", "distributed", _dask), ("Parsl", "parsl", _parsl)):
        if importlib.util.find_spec(module) is None:
            rows.append(Row(name, middle(ours), "s", third, note=f"without {peer_name}: pip install {module}"))
            continue
        with begin() as run:
            run(WORKERS * 4)
            rows.append(Row(name, middle(ours), "s", third, peer_name, _seconds(lambda: run(number))))
    return rows


def _first_result(node: Node) -> Row:
    """Of a function for which a worker imports nothing: the import of this module, with numpy, takes 0.3 s more."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        with Executor(WORKERS, address=node.address) as executor:
            executor.submit(abs, 1).result()
            times.append(time.perf_counter() - began)
    goal, note = Goal("at most", 0.15), f"from {min(times):.3f} to {max(times):.3f}"
    name, value = "a fresh executor's first result", statistics.median(times)
    if importlib.util.find_spec("distributed") is None:
        return Row(name, value, "s", goal, note=note)
    began = time.perf_counter()
    with _dask(1, abs) as run:
        run(1)
        peer = time.perf_counter() - began
    return Row(name, value, "s", goal, "Dask LocalCluster of one worker", peer, note=note)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


Run = Callable[[int], None]


@contextlib.contextmanager
def _dask(workers: int = WORKERS, function: Callable[[int], object] = _nothing) -> Iterator[Run]:
    dask: Any = importlib.import_module("distributed")
    with (
        dask.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        dask.Client(cluster) as client,
    ):
        yield lambda number: client.gather(client.map(function, range(number), pure=False)) and None


@contextlib.contextmanager
def _parsl() -> Iterator[Run]:
    parsl: Any = importlib.import_module("parsl")
    htex: Any = importlib.import_module("parsl.executors")
    providers: Any = importlib.import_module("parsl.providers")
    beside = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # it starts programs of its own by name
    with tempfile.TemporaryDirectory() as directory, patch.dict(os.environ, PATH=beside):
        workers = htex.HighThroughputExecutor(
            max_workers_per_node=WORKERS, provider=providers.LocalProvider(), address="127.0.0.1"
        )
        with parsl.load(parsl.Config(executors=[workers], run_dir=directory)):
            app = parsl.python_app(_nothing)

            def run(number: int) -> None:
                for future in [app(each) for each in range(number)]:
                    future.result()

            yield run
