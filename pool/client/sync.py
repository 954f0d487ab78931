"""The pool from programs without asyncio: the same classes and methods, which return when it is done.

    from pool.client.sync import SyncPool

    with SyncPool.connect() as pool:
        cluster = pool.submit({"executable": "/bin/true", "queue": 3})
        for result in pool.as_completed([cluster]):
            print(result.job, result.exit_code)

Each connected pool has an event loop in a thread of its own. An async iterator of `pool.client` is an iterator here.
Every method may be called from any thread. Functions that are passed in (`progress`) are called in the loop's
thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pool.client import handles
from pool.client import pool as asynchronous
from pool.errors import PoolError

__all__ = ["SyncCluster", "SyncJob", "SyncPool"]

T = TypeVar("T")
_END = object()
#: Members that are only of use in the loop's own thread.
_LOOPS_OWN = ("link", "streaming")


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="pool client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The value that the coroutine returns; interrupting the wait cancels it.

        Raises:
            PoolError: the pool was closed, or this is the loop's own thread.
        """
        if self.loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            closed = self.loop.is_closed()
            raise PoolError("the pool was closed" if closed else "a pool cannot be waited for in its own thread")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread; a second time nothing happens."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


class _Mirror:
    """An object of the asynchronous library, and the loop that it lives in."""

    def __init__(self, inner: Any, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._inner)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """For type checkers: the methods and properties that `_mirrored` gives."""

    def _shown(self, found: Any) -> Any:
        """A method's result, in this module's classes."""
        if isinstance(found, handles.Cluster):
            return SyncCluster(found, self._thread)
        if isinstance(found, handles.Job):
            return SyncJob(found, self._thread)
        if isinstance(found, list):
            return [self._shown(one) for one in found]
        if hasattr(found, "__anext__"):
            return self._iterate(found)
        return found

    def _iterate(self, items: Any) -> Iterator[Any]:
        async def step() -> Any:
            return await anext(items, _END)

        try:
            while (item := self._thread.run(step())) is not _END:
                yield self._shown(item)
        finally:
            if hasattr(items, "aclose") and not self._thread.loop.is_closed():
                self._thread.run(items.aclose())


def _mirrored(source: type[Any]) -> Callable[[type[T]], type[T]]:
    """Give a class the public methods and properties of an asynchronous one."""

    def mirror_members(cls: type[T]) -> type[T]:
        for name in dir(source):
            member = inspect.getattr_static(source, name)
            if name.startswith("_") or name in _LOOPS_OWN or name in vars(cls):
                continue
            if isinstance(member, property):
                setattr(cls, name, property(_reading(name), doc=member.__doc__))
            elif callable(member):
                setattr(cls, name, _calling(name, member))
        return cls

    return mirror_members


def _reading(name: str) -> Callable[[Any], Any]:
    def read(self: _Mirror) -> Any:
        return self._shown(getattr(self._inner, name))

    return read


def _calling(name: str, member: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(member)
    def call(self: _Mirror, *arguments: Any, **named: Any) -> Any:
        async def work() -> Any:
            found = getattr(self._inner, name)(*arguments, **named)
            return await found if inspect.isawaitable(found) else found

        return self._shown(self._thread.run(work()))

    return call


@_mirrored(handles.Job)
class SyncJob(_Mirror):
    """One job: `cluster.proc`. Its methods are those of `pool.client.Job`, and return when it is done."""

    def _repr_html_(self) -> str:
        """For notebooks: how the job stands."""
        from pool.client.notebook import results_table

        return results_table(f"Job {self.cluster}.{self.proc}", [self.result()])

    @property
    def cluster(self) -> int:
        """The number of its cluster."""
        return int(self._inner.cluster)

    @property
    def proc(self) -> int:
        """Its number in the cluster."""
        return int(self._inner.proc)


@_mirrored(handles.Cluster)
class SyncCluster(_Mirror):
    """The jobs of one submit. Its methods are those of `pool.client.Cluster`, and return when it is done."""

    def _repr_html_(self) -> str:
        """For notebooks: how its jobs stand."""
        from pool.client.notebook import results_table

        return results_table(f"Cluster {self.cluster}", self.results())

    @property
    def cluster(self) -> int:
        """Its number."""
        return int(self._inner.cluster)

    @property
    def count(self) -> int | None:
        """How many jobs it was submitted with, None where that is not known."""
        count: int | None = self._inner.count
        return count

    @property
    def spooled(self) -> bool:
        """Whether its files were sent along: `fetch` brings its outputs."""
        return bool(self._inner.spooled)

    def __getitem__(self, proc: int) -> SyncJob:
        return SyncJob(self._inner[proc], self._thread)


@_mirrored(asynchronous.Pool)
class SyncPool(_Mirror):
    """A connected pool. `with Pool.connect() as pool:` closes it at the end.

    Its methods are those of `pool.client.Pool`, and return when it is done.
    """

    def _repr_html_(self) -> str:
        """For notebooks: the pool's machines, and how many jobs are in which state."""
        from pool.client.notebook import pool_tables

        names = ["Machine", "Name", "State", "Activity", "Cpus", "Memory"]
        return pool_tables(self._inner.address, self.machines(attributes=names), self.jobs(attributes=["JobStatus"]))

    @classmethod
    def connect(cls, address: str | None = None, **how: Any) -> Self:
        """Connects to the node at `address`, by default the user's own. Arguments as for `pool.client.Pool.connect`.

        Raises:
            NoPool: no node was found, or none answers.
        """
        thread = LoopThread()
        try:
            return cls(thread.run(asynchronous.Pool.connect(address, **how)), thread)
        except BaseException:
            thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection, and ends the thread. Jobs go on."""
        if not self._thread.loop.is_closed():
            self._thread.run(self._inner.close())
            self._thread.close()
