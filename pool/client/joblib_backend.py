"""A backend of joblib: scikit-learn and all else that uses joblib on a pool.

    import pool.client.joblib_backend
    from joblib import parallel_backend

    with parallel_backend("poolnode"):
        GridSearchCV(SVC(), grid).fit(X, y)

Importing this module registers it. Further arguments of `parallel_backend` are those of `pool.Executor`; `n_jobs` is
how many batches are with workers at a time, by default as many as the pool has processors. Needs joblib 1.5, and
cloudpickle.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase  # what joblib's documentation derives from

from pool.client.executor import Executor


class JoblibBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Performs joblib's batches of calls in workers that are jobs of a pool."""

    supports_retrieve_callback = True
    supports_return_generator = True
    supports_timeout = True
    uses_threads = False
    supports_sharedmem = False

    def __init__(self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **how: Any) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._how = how
        self._executor: Executor | None = None
        self._futures: set[Future[Any]] = set()

    def _opened(self) -> Executor:
        if self._executor is None:
            self._executor = Executor(**self._how)
        return self._executor

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches are with workers at a time.

        Raises:
            ValueError: `n_jobs` is 0.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs < 0:
            return max(self._opened().max_workers + 1 + (-1 if n_jobs is None else n_jobs), 1)
        return n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, **how: Any) -> int:
        """Called by joblib before calls; the rest of its arguments are for memory maps of files on one machine."""
        self.parallel = parallel
        number = self.effective_n_jobs(n_jobs)
        self._opened()
        return number

    def submit(self, func: Callable[..., Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        """A batch of calls."""
        future = self._opened().submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch.

        Raises:
            BaseException: what a call raised.
        """
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what waits and what runs."""
        for future in list(self._futures):
            future.cancel()

    def terminate(self) -> None:
        """End the workers."""
        self.reset_batch_stats()
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


register_parallel_backend("poolnode", JoblibBackend)
