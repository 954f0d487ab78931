"""Functions as jobs: an executor of `concurrent.futures` over a pool (H2).

    from pool.client.executor import PoolExecutor

    with PoolExecutor(commands={"request_memory": "2GB"}) as executor:
        for value in executor.map(simulate, range(1000)):
            print(value)

Each call is a job: the function and its arguments are pickled into a file, a Python on the machine runs them, and the
result reaches the submit side as a file. Calls made close together are one cluster. Functions of the program itself
(`__main__`) and lambdas need the package `cloudpickle`; others are imported by their module's name where the job runs.
A future that is cancelled removes its job, one whose job is held or fails has an exception that says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pool.client.pool import Pool
from pool.client.results import Result
from pool.client.sync import LoopThread
from pool.client.tally import HELD, OVER
from pool.client.waiting import final_results, follow
from pool.errors import PoolError

T = TypeVar("T")
#: Seconds for which further calls gather into one cluster.
GATHER = 0.02
_RUNS = "run_call.py"
#: The program that runs a call at the job; it needs no more than Python there.
_PROGRAM = '''\
import pickle, sys, traceback
try:
    with open(sys.argv[1], "rb") as file:
        function, arguments, named = pickle.load(file)
    came = (True, function(*arguments, **named), "")
except BaseException as error:
    came = (False, error, traceback.format_exc())
try:
    data = pickle.dumps(came)
    pickle.loads(data)
except BaseException as error:
    text = came[2] or "the value cannot be pickled: " + repr(error)
    data = pickle.dumps((False, RuntimeError(text.strip().splitlines()[-1]), text))
with open(sys.argv[2], "wb") as file:
    file.write(data)
'''


class JobFailed(PoolError):
    """The job of a call did not bring a result.

    Attributes:
        result: what became of the job.
    """

    def __init__(self, message: str, result: Result, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.result = result


class PoolExecutor(Executor):
    """Runs functions as jobs of a pool.

    Args:
        address: the node to submit at, by default the user's own.
        commands: further commands of the jobs' description: `{"request_memory": "2GB"}`.
        directory: where calls and results lie, which the jobs' user can read and write; by default one of its own
            below the user's cache directory, removed at the end.
        python: the Python that runs the calls; it has to be of this one's version, on every machine.

    Raises:
        NoPool: no node was found, or none answers.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        commands: Mapping[str, Any] | None = None,
        directory: str | os.PathLike[str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self._commands = dict(commands or {})
        self._python = python
        self._own = directory is None
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poolnode"
        if directory is None:
            cache.mkdir(parents=True, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(prefix="calls-", dir=cache) if directory is None else directory)
        (self._directory / _RUNS).write_text(_PROGRAM)
        self._lock = threading.Lock()
        self._calls = 0
        self._gathered: list[tuple[int, Future[Any]]] = []
        self._open: set[Future[Any]] = set()
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = LoopThread()
        try:
            self._pool = self._thread.run(Pool.connect(address))
        except BaseException:
            self._thread.close()
            self._forget_files()
            raise

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call.

        Raises:
            PoolError: it cannot be pickled; cloudpickle may be missing.
            RuntimeError: the executor was shut down.
        """
        packed = _packed(fn, args, kwargs)
        future: Future[T] = Future()
        with self._lock:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls += 1
            number = self._calls
            self._open.add(future)
            future.add_done_callback(self._on_done)
            (self._directory / f"{number}.call").write_bytes(packed)
            self._gathered.append((number, future))
            if len(self._gathered) == 1:
                self._thread.loop.call_soon_threadsafe(self._thread.loop.call_later, GATHER, self._begin)
        return future

    def _on_done(self, future: Future[Any]) -> None:
        self._open.discard(future)
        if future.cancelled():
            future.set_running_or_notify_cancel()  # `concurrent.futures.wait` hears of it by this alone

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those there are, unless `wait` is false. Jobs whose futures are cancelled are
        removed. Without `wait` the rest ends by itself.
        """
        with self._lock:
            first, self._over = not self._over, True
            left = list(self._open)
        if cancel_futures:
            for future in left:
                future.cancel()
        if not first:
            return
        if wait:
            self._end()
        else:
            threading.Thread(target=self._end, name="pool executor ends", daemon=True).start()

    def _end(self) -> None:
        async def all_over() -> None:
            await asyncio.sleep(GATHER)
            while self._tasks or self._gathered:
                if self._tasks:
                    await asyncio.wait(self._tasks)
                else:
                    await asyncio.sleep(GATHER)
            await self._pool.close()

        self._thread.run(all_over())
        self._thread.close()
        self._forget_files()

    def _forget_files(self) -> None:
        if self._own:
            shutil.rmtree(self._directory, ignore_errors=True)

    # -- in the loop's thread --------------------------------------------------------------------------------

    def _begin(self) -> None:
        with self._lock:
            calls, self._gathered = self._gathered, []
        task = self._thread.loop.create_task(self._run(dict(calls)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, calls: dict[int, Future[Any]]) -> None:
        try:
            await self._follow(calls)
        except BaseException as error:
            for future in calls.values():
                if not future.done():
                    with contextlib.suppress(Exception):
                        future.set_exception(error)

    async def _follow(self, calls: dict[int, Future[Any]]) -> None:
        numbers = [number for number, future in calls.items() if not future.cancelled()]
        if not numbers:
            return
        cluster = await self._pool.submit(
            {
                "executable": self._python,
                "transfer_executable": False,
                "arguments": [_RUNS, "$(call).call", "$(call).result"],
                "transfer_input_files": [_RUNS, "$(call).call"],
                "transfer_output_files": ["$(call).result"],
                "environment": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                "output": "$(call).out",
                "error": "$(call).err",
                **self._commands,
                "items": [{"call": number} for number in numbers],
            },
            iwd=self._directory,
        )
        futures = {(cluster.cluster, proc): (number, calls[number]) for proc, number in enumerate(numbers)}
        for proc, (_, future) in enumerate(futures.values()):
            future.add_done_callback(partial(self._given_up, cluster.cluster, proc))
        async for tally, moved in follow(self._pool, [(cluster.cluster,)], list(futures)):
            ended = sorted(job for job in moved if tally.states[job] in (*OVER, HELD))
            for result in await final_results(self._pool, ended, tally) if ended else ():
                if result.is_over or result.state == "held":
                    await self._set_outcome(*futures[result.cluster, result.proc], result)
            if all(future.done() for _, future in futures.values()):
                return

    def _given_up(self, cluster: int, proc: int, future: Future[Any]) -> None:
        """A future that was cancelled has its job removed."""
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop is closed: the pool has ended
                asyncio.run_coroutine_threadsafe(self._remove(cluster, proc), self._thread.loop)

    async def _remove(self, cluster: int, proc: int) -> None:
        with contextlib.suppress(PoolError):
            await self._pool.job(cluster, proc).remove("its future was cancelled")

    async def _set_outcome(self, number: int, future: Future[Any], result: Result) -> None:
        if future.done():
            return
        with contextlib.suppress(Exception):  # cancelled meanwhile
            if result.ok:
                try:
                    fine, value, trace = pickle.loads((self._directory / f"{number}.result").read_bytes())
                except Exception as error:
                    future.set_exception(JobFailed(f"the result of job {result.job} cannot be read: {error}", result))
                    return
                if fine:
                    future.set_result(value)
                else:
                    value.add_note(f"in job {result.job}:\n{trace}")
                    future.set_exception(value)
                for ending in ("call", "result", "out", "err"):
                    (self._directory / f"{number}.{ending}").unlink(missing_ok=True)
            else:
                future.set_exception(_failure(result, self._directory / f"{number}.err"))
        if result.state == "held":
            await self._remove(result.cluster, result.proc)


def _packed(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        cloudpickle = None
    try:
        if cloudpickle is not None:
            return bytes(cloudpickle.dumps((fn, args, dict(kwargs))))
        if getattr(fn, "__module__", "") == "__main__":
            raise pickle.PicklingError("it is a function of the program itself")
        return pickle.dumps((fn, args, dict(kwargs)))
    except Exception as error:
        way = "" if cloudpickle is not None else "install cloudpickle, or put the function into a module of its own"
        raise PoolError(f"cannot send {getattr(fn, '__qualname__', fn)!r} as a job: {error}", hint=way) from error


def _failure(result: Result, errors: Path) -> JobFailed:
    if result.state == "held":
        return JobFailed(f"job {result.job} was held: {result.reason}", result, hint="it was removed")
    if result.state == "removed":
        return JobFailed(f"job {result.job} was removed: {result.reason}", result)
    how = f"signal {result.signal}" if result.signal is not None else f"status {result.exit_code}"
    last = ""
    with contextlib.suppress(OSError):
        last = (errors.read_text(errors="replace").strip().splitlines() or [""])[-1][:200]
    return JobFailed(f"job {result.job} ended with {how}{': ' + last if last else ''}", result)
