"""An executor of `concurrent.futures` whose workers are jobs of a pool (H2).

    from pool import Executor

    with Executor() as executor:
        for value in executor.map(simulate, range(1000)):
            print(value)

The workers are Python processes that live as long as there is work: jobs, which the pool matches, checkpoints and moves
as any other. Each connects to the executor and performs one call at a time. An evicted worker goes on elsewhere from
its checkpoint, with the call that it performed, or the call begins again; neither is a failure.

Functions and values are pickled, large buffers (arrays) travel beside the pickle, on one machine as shared memory.
Functions of the program itself (`__main__`) and lambdas need the package `cloudpickle`. Whoever runs a machine of the
pool can send results to this program, which unpickles them: use it in pools whose machines you trust.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as _StandardExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pool.client.pool import Pool
from pool.client.sync import LoopThread
from pool.client.workers import worker as worker_program
from pool.client.workers.futures import CallFuture, JobFailed, QueuedCall
from pool.client.workers.hub import CallHub
from pool.client.workers.links import WorkerServer
from pool.client.workers.packing import CallPacker, chunks
from pool.client.workers.worker import report_progress
from pool.errors import PoolError
from pool.outside import OutsideWorld

__all__ = ["AsyncExecutor", "CallFuture", "Executor", "JobFailed", "report_progress"]

T = TypeVar("T")
#: Workers of a pool that does not say how many processors it has.
WORKERS = 8


class Executor(_StandardExecutor):
    """Performs calls in jobs of a pool.

    Args:
        max_workers: the most workers (of each set of commands); by default the number of the pool's processors.
        address: the node to submit at, by default the user's own.
        commands: further commands of the workers' description: `{"request_memory": "2GB"}`.
        min_workers: so many are kept, whether there are calls or not.
        idle_seconds: after so long without a call a worker ends.
        directory: for files that workers read and write; by default one of its own below the user's cache directory,
            removed at the end.
        python: the Python that runs the calls, of this one's version, on every machine; by default this one.
        ship: names of modules and packages, or paths, that the workers get from here. Others they find as this
            program does, where its files are visible, or in their own Python.
        host: the address of this machine at which workers on other machines connect.

    Raises:
        NoPool: no node was found, or none answers.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        address: str | None = None,
        commands: Mapping[str, Any] | None = None,
        min_workers: int = 0,
        idle_seconds: float = 30.0,
        directory: str | os.PathLike[str] | None = None,
        python: str | None = None,
        ship: Sequence[str | os.PathLike[str]] = (),
        host: str | None = None,
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        self._commands = dict(commands or {})
        self._python = python or sys.executable
        self._ship = [os.fspath(each) for each in ship]
        self._host = host
        self._packer = CallPacker()
        self._lock = threading.Lock()
        self._count = 0
        self._incoming: list[QueuedCall] = []
        self._new_groups: dict[str, Mapping[str, Any]] = {}
        self._known_groups: set[str] = set()
        self._over = False
        self._ended = threading.Event()
        self._bounds = min_workers, max_workers, idle_seconds
        self._own = directory is None
        if directory is None:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poolnode"
            cache.mkdir(parents=True, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(prefix="executor-", dir=cache if directory is None else directory))
        self._thread = LoopThread()
        try:
            self._pool, self._hub, self._server = self._thread.run(self._begin(address))
        except BaseException:
            self._thread.close()
            self._forget_files()
            raise
        self._group_of(self._commands)
        _at_exit(self)

    # -- calls -------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> CallFuture[T]:
        """Queue a call.

        Raises:
            PoolError: it cannot be pickled; cloudpickle may be missing.
            RuntimeError: the executor was shut down.
        """
        return self._submit(fn, (args, kwargs), 0, self._commands)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """As the function `map`, with the calls made at once and performed by workers.

        Args:
            chunksize: how many calls a worker gets as one.

        Raises:
            TimeoutError: `timeout` seconds after this call a result is missing.
        """
        return self._map(fn, iterables, timeout, chunksize, self._commands)

    def with_commands(self, **commands: Any) -> Resources:
        """Calls with other resources: `executor.with_commands(request_memory="8GB").submit(fit)`.

        They have workers of their own, of which there are at most `max_workers`, too.
        """
        return Resources(self, {**self._commands, **commands})

    @property
    def max_workers(self) -> int:
        """The most workers that there are for each set of commands."""
        return self._hub.most

    def counts(self) -> dict[str, int]:
        """How many calls are `waiting`, `running` (with workers) and `done`, and how many `workers` are `connected`."""
        return self._thread.run(_soon(self._hub.counts))

    def workers(self) -> list[tuple[str, str, str, int]]:
        """Of each worker its job, its machine, starting, connected or lost, and how many calls it has."""
        return self._thread.run(_soon(self._hub.worker_jobs))

    def _repr_html_(self) -> str:
        """For notebooks: the calls and the workers."""
        from pool.client.notebook import table

        counts = ", ".join(f"{number} {name}" for name, number in self.counts().items())
        return table(f"Executor: {counts}", ("job", "machine", "state", "calls"), self.workers())

    def _submit(self, fn: Callable[..., Any], values: Any, mode: int, commands: Mapping[str, Any]) -> CallFuture[Any]:
        function = self._packer.function(fn)
        data, buffers = self._packer.values(fn, values)
        key = self._group_of(commands)
        future: CallFuture[Any] = CallFuture(self._cancelled, self._why)
        with self._lock:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._count += 1
            self._incoming.append(QueuedCall(self._count, function, mode, data, buffers, future, key))
            first = len(self._incoming) == 1
        if first:
            self._thread.loop.call_soon_threadsafe(self._accept_calls)
        return future

    def _map(
        self,
        fn: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        timeout: float | None,
        chunksize: int,
        commands: Mapping[str, Any],
    ) -> Iterator[Any]:
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        ticks = OutsideWorld().ticks
        end = None if timeout is None else ticks() + timeout
        if chunksize == 1:
            futures = [self._submit(fn, (row, {}), 0, commands) for row in zip(*iterables, strict=False)]
        else:
            futures = [self._submit(fn, (part, {}), 1, commands) for part in chunks(iterables, chunksize)]

        def results() -> Iterator[Any]:
            try:
                futures.reverse()
                while futures:
                    value = futures.pop().result(None if end is None else max(end - ticks(), 0.0))
                    if chunksize == 1:
                        yield value
                    else:
                        yield from value
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def _group_of(self, commands: Mapping[str, Any]) -> str:
        key = json.dumps(commands, sort_keys=True, default=str)
        if key not in self._known_groups:
            self._known_groups.add(key)
            self._thread.loop.call_soon_threadsafe(self._hub.group, key, dict(commands))
        return key

    def _accept_calls(self) -> None:
        with self._lock:
            calls, self._incoming = self._incoming, []
        self._hub.add(calls)

    def _cancelled(self, future: CallFuture[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the executor has ended
            self._thread.loop.call_soon_threadsafe(self._hub.cancelled, future)

    def _why(self, future: CallFuture[Any]) -> str:
        return self._thread.run(self._hub.why(future))

    # -- the end -----------------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, perform those there are, and end the workers; without `wait` in the background.

        Args:
            cancel_futures: cancel the calls that have not ended, also those that run.
        """
        with self._lock:
            first, self._over = not self._over, True
        if not first:
            if wait:
                self._ended.wait()
            return
        if wait:
            self._end(cancel_futures)
        else:
            threading.Thread(target=self._end, args=(cancel_futures,), name="pool executor ends").start()

    def _end(self, cancel: bool) -> None:
        async def all_over() -> None:
            self._accept_calls()
            if cancel:
                self._hub.cancel_all()
            await self._hub.calm()
            self._server.close()
            await self._hub.close()
            await self._pool.close()

        try:
            self._thread.run(all_over())
            self._thread.close()
        finally:
            self._forget_files()
            self._ended.set()

    def _forget_files(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    # -- in the loop's thread ----------------------------------------------------------------------------------

    async def _begin(self, address: str | None) -> tuple[Pool, CallHub, WorkerServer]:
        pool = await Pool.connect(address)
        try:
            least, most, idle = self._bounds
            machines, processors = await _pool_size(pool)
            hub = CallHub(pool, self._start_workers, least, max(most or processors, least), idle)
            host = self._host or (None if machines <= 1 else await _own_address(pool))
            secret = OutsideWorld().secret(32)
            server = WorkerServer(self._directory, secret, hub, host)
            await server.start()
            self._write_files(server, secret)
        except BaseException:
            await pool.close()
            raise
        return pool, hub, server

    def _write_files(self, server: WorkerServer, secret: str) -> None:
        shutil.copyfile(worker_program.__file__, self._directory / "worker.py")
        with contextlib.suppress(ImportError):
            import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]

            if self._ship:
                self._ship.append(os.path.dirname(cloudpickle.__file__))
        if self._ship:
            _write_archive(self._directory / "modules.zip", self._ship)
        config = {
            "unix": str(server.path),
            "tcp": server.address,
            "secret": secret,
            "certificate": server.certificate,
            "path": [os.path.abspath(each) for each in sys.path],
            "ship": "modules.zip" if self._ship else None,
            "directory": os.getcwd(),
        }
        file = os.open(self._directory / "worker.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "w", encoding="utf-8") as opened:
            json.dump(config, opened)

    async def _start_workers(self, commands: Mapping[str, Any], number: int) -> list[str]:
        inputs = ["worker.py", "worker.json", *(["modules.zip"] if self._ship else [])]
        cluster = await self._pool.submit(
            {
                "executable": self._python,
                "transfer_executable": False,
                "arguments": ["worker.py", "worker.json", "$(Cluster).$(Process)"],
                "transfer_input_files": inputs,
                "outside_connections": "reset",
                "output": "worker.$(Cluster).$(Process).out",
                "error": "worker.$(Cluster).$(Process).err",
                **commands,
                "queue": number,
            },
            iwd=self._directory,
        )
        return [f"{cluster.cluster}.{proc}" for proc in range(number)]


class Resources:
    """An executor's calls with other commands; see `Executor.with_commands`."""

    def __init__(self, executor: Executor, commands: Mapping[str, Any]) -> None:
        self._executor = executor
        self._commands = commands

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> CallFuture[T]:
        """As `Executor.submit`."""
        return self._executor._submit(fn, (args, kwargs), 0, self._commands)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """As `Executor.map`."""
        return self._executor._map(fn, iterables, timeout, chunksize, self._commands)


class AsyncExecutor:
    """The executor in programs with asyncio: `async with AsyncExecutor() as executor: await executor.run(f, 1)`.

    Its arguments are those of `Executor`.
    """

    def __init__(self, max_workers: int | None = None, **how: Any) -> None:
        self._made: Executor | None = None
        self._how = {"max_workers": max_workers, **how}

    async def __aenter__(self) -> Self:
        self._made = await asyncio.to_thread(lambda: Executor(**self._how))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.executor.shutdown, cancel_futures=kind is not None)

    @property
    def executor(self) -> Executor:
        """The executor itself.

        Raises:
            PoolError: it is not open: use `async with`.
        """
        if self._made is None:
            raise PoolError("the executor is not open", hint="async with AsyncExecutor() as executor: ...")
        return self._made

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> asyncio.Future[T]:
        """A call, as a future of the running loop; cancelling that interrupts the call."""
        return asyncio.wrap_future(self.executor.submit(fn, *args, **kwargs))

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """The value of a call."""
        return await self.submit(fn, *args, **kwargs)

    async def map(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> AsyncIterator[T]:
        """The values of calls, in their order; leaving the loop early cancels the rest."""
        futures = [self.submit(fn, *row) for row in zip(*iterables, strict=False)]
        try:
            for future in futures:
                yield await future
        finally:
            for future in futures:
                future.cancel()


async def _soon(work: Callable[[], T]) -> T:
    return work()


async def _pool_size(pool: Pool) -> tuple[int, int]:
    """How many machines the pool has, and their processors."""
    names = ("Machine", "TotalSlotCpus", "TotalCpus", "Cpus", "SlotType")
    machines: dict[str, int] = {}
    with contextlib.suppress(PoolError):
        for ad in await pool.advertised("Machine", attributes=names):
            cpus = ad.get("TotalCpus") or ad.get("Cpus")
            if isinstance(cpus, int | float):
                name = str(ad.get("Machine"))
                machines[name] = max(machines.get(name, 1), int(cpus))
    return len(machines), sum(machines.values()) or WORKERS


async def _own_address(pool: Pool) -> str:
    """This machine's address, as the pool's other machines reach it."""
    known = str((await pool.info()).get("address") or pool.address).partition("://")[2]
    host, _, port = known.rpartition(":")
    if pool.address.startswith("unix:") and host:
        return host.strip("[]")
    family, _, _, _, where = (await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port or 9618))[0]
    with socket.socket(family, socket.SOCK_DGRAM) as found:
        found.connect(where)  # sends nothing
        return str(found.getsockname()[0])


def _write_archive(path: Path, wanted: Sequence[str]) -> None:
    """Modules and packages as one archive, which Python imports from.

    Raises:
        PoolError: one is not found, or is not in Python alone.
    """
    from importlib.util import find_spec

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in wanted:
            source = Path(each)
            if not source.exists():
                with contextlib.suppress(ImportError, ValueError):
                    spec = find_spec(each)
                    places = list(spec.submodule_search_locations or ()) if spec else []
                    source = Path(places[0] if places else (spec and spec.origin) or each)
            if not source.exists():
                raise PoolError(f"there is no module or file {each!r} to ship")
            files = sorted(source.rglob("*")) if source.is_dir() else [source]
            for file in files:
                if file.suffix in (".so", ".pyd"):
                    raise PoolError(
                        f"{each!r} cannot be shipped: it is not in Python alone ({file.name})",
                        hint="install it where the workers run, and name that Python",
                    )
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(source.parent))


def _at_exit(executor: Executor) -> None:
    """A program that ends without `shutdown` waits for its calls, as with other executors, and leaves no worker."""
    known = weakref.ref(executor)

    def end() -> None:
        if (left := known()) is not None:
            left.shutdown()

    atexit.register(end)
    weakref.finalize(executor, atexit.unregister, end)
