"""The future of a call, and the errors of calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.results import Result

T = TypeVar("T")


class JobFailed(PoolError):
    """The worker of a call ended before it had a result.

    Attributes:
        result: what became of the worker's job; None if no job was made.
    """

    def __init__(self, message: str, result: Result | None = None, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.result = result


class CallFuture(Future[T]):
    """A future of `concurrent.futures` that knows where its call is.

    Attributes:
        job: the worker's job, as `12.3`; None before a worker has the call.
        host: that worker's machine.
        progress: the last value that the call gave to `report_progress`.
    """

    def __init__(self, cancelled: Callable[[CallFuture[Any]], None], why: Callable[[CallFuture[Any]], str]) -> None:
        super().__init__()
        self.job: str | None = None
        self.host: str | None = None
        self.progress: Any = None
        self._on_cancel = cancelled
        self._why = why

    def cancel(self) -> bool:
        """Cancel the call, also one that runs: it is interrupted. False: it has ended already."""
        with self._condition:
            if self._state == "RUNNING":
                self._state = "PENDING"
            first = self._state == "PENDING"
            done = super().cancel()
        if first and done:
            self.set_running_or_notify_cancel()  # `concurrent.futures.wait` hears of it by this alone
            self._on_cancel(self)
        return done

    def why(self) -> str:
        """In words: where the call is, or what it waits for. Asks the pool."""
        return self._why(self)


@dataclass(eq=False, slots=True)
class QueuedCall:
    """A call that has no result yet.

    Attributes:
        number: its number in the executor.
        function: the function's bytes.
        mode: 0: one call, 1: a list of calls of the same function.
        data, buffers: its arguments.
        suspect: a worker ended that had it among others: it is sent by itself.
    """

    number: int
    function: bytes
    mode: int
    data: bytes
    buffers: list[memoryview]
    future: CallFuture[Any]
    group: str
    suspect: bool = False
