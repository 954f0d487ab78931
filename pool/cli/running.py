"""The coroutine behind `run`: a personal node, its jobs and Ctrl-C, from start to end.

Apart from `run` itself so that its help needs no event loop. The work of a node is done elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.cli.common import EndedBySignal
from pool.client.tally import IDLE, RUNNING, SUSPENDED, TRANSFERRING

if TYPE_CHECKING:
    from pool.cli.progress import Board
    from pool.client.pool import Pool
    from pool.client.results import Result
    from pool.client.tally import Tally
    from pool.jobs.description import Description

#: Nothing has run for so long, seconds, before `run` says why.
STALLED = 0.5
LEAVING = 30.0  # seconds that removed jobs get to go before they are left to their leases


async def run_here(
    description: Description, state: Path, slots: int | None, quiet: bool
) -> tuple[list[Result], int, float]:
    """Runs the jobs; returns their results, the signal that stopped them (0 if none), the seconds it took."""
    from pool.cli.progress import Board, Working
    from pool.client.pool import Pool
    from pool.node import personal

    loop = asyncio.get_running_loop()
    began = loop.time()
    stop = _Stop()
    with _log(state), stop.listening():
        async with contextlib.AsyncExitStack() as stack:
            with Working("starting a pool on this machine"):
                address = await stack.enter_async_context(personal(state, slots=slots))
                pool = await stack.enter_async_context(await Pool.connect(address))
            with Working("submitting"):
                clusters = await pool.submit_all(description)
            board = Board(quiet=quiet)
            try:
                jobs = _initial_states(description, [cluster.cluster for cluster in clusters])
                results = await _follow(pool, jobs, board, stop, waits=_releases_itself(description))
            finally:
                board.close()
            return results, stop.signal, loop.time() - began


@contextlib.contextmanager
def _log(state: Path) -> Iterator[None]:
    """The node's log goes to a file beside its state; only what went wrong is also said here."""
    import logging

    from pool.log import set_up_logging

    logger = logging.getLogger("pool")
    with (state / "node.log").open("a", encoding="utf-8") as file:
        set_up_logging(file, as_json=False, level="info")
        aloud = logging.StreamHandler()
        aloud.setLevel(logging.ERROR)
        aloud.setFormatter(logging.Formatter("poolnode: %(name)s: %(message)s"))
        logger.addHandler(aloud)
        try:
            yield
        finally:
            logger.handlers[:] = []


def _initial_states(description: Description, clusters: list[int]) -> dict[tuple[int, int], int]:
    """The jobs that were submitted and the state each begins in (idle, or held at submission)."""
    jobs: dict[tuple[int, int], int] = {}
    for cluster, draft in zip(clusters, description.clusters, strict=True):
        state = 5 if draft.attributes.get("JobStatus") == 5 else 1
        jobs |= dict.fromkeys(((cluster, proc) for proc in range(draft.count)), state)
    return jobs


def _releases_itself(description: Description) -> bool:
    """Whether a held job may come back without anybody's doing."""
    for draft in description.clusters:
        if str(draft.attributes.get("PeriodicRelease", False)).strip("[]'").lower() not in ("false", "0"):
            return True
    return False


async def _follow(
    pool: Pool, jobs: dict[tuple[int, int], int], board: Board, stop: _Stop, *, waits: bool
) -> list[Result]:
    from pool.client.waiting import wait_for

    ids = sorted({(cluster,) for cluster, _ in jobs})
    stop.orderly = True
    stalls = _Stalls(pool, board)
    waiting = asyncio.ensure_future(wait_for(pool, ids, jobs, progress=stalls.progress, until_stuck=not waits))
    stopping = asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            board.print_note("removing the jobs; once more to leave them at once")
            await pool.act("remove", ids=ids, reason="interrupted")
            await asyncio.wait({waiting}, timeout=LEAVING)
        if waiting.done():
            return waiting.result()
        return [result for (cluster,) in ids for result in await pool.cluster(cluster).results()]
    finally:
        stalls.close()
        for task in (waiting, stopping):
            task.cancel()


class _Stalls:
    """Says why nothing runs, once nothing has run for a moment though jobs are idle (D8)."""

    def __init__(self, pool: Pool, board: Board) -> None:
        self._pool = pool
        self._board = board
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._tally: Tally | None = None
        self._said: set[str] = set()

    def progress(self, tally: Tally) -> None:
        """Takes the tally at each change, and shows it."""
        self._board(tally)
        self._tally = tally
        stalled = tally.counts[IDLE] > 0 and not any(tally.counts[one] for one in (RUNNING, TRANSFERRING, SUSPENDED))
        if not stalled:
            self._cancel_timer()
        elif self._timer is None:
            self._timer = self._loop.call_later(STALLED, self._start_explaining)

    def close(self) -> None:
        """Asks nothing more."""
        self._cancel_timer()
        if self._asking is not None:
            self._asking.cancel()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_explaining(self) -> None:
        self._timer = None
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._explain())

    async def _explain(self) -> None:
        from pool.errors import PoolError
        from pool.policy.why.standing import Standing

        assert self._tally is not None
        job = next((job for job, state in self._tally.states.items() if state == IDLE), None)
        if job is None:
            return
        try:
            explanation = await self._pool.why(f"{job[0]}.{job[1]}")
        except PoolError:
            return  # it has left the queue meanwhile
        if explanation.standing in (Standing.NEXT, Standing.CLAIMING, Standing.BUSY):
            self._timer = self._loop.call_later(STALLED, self._start_explaining)
            return
        lines = explanation.lines()
        if lines[1:] and (text := "\n".join(lines[1:])) not in self._said:
            self._said.add(text)
            self._board.print_note("\n".join(lines))


class _Stop:
    """Ctrl-C and its like. Once jobs are queued, the first asks to end in order; any other ends at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.signal = 0
        self.orderly = False
        self._task: asyncio.Task[Any] | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in caught:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        except asyncio.CancelledError:
            if not self.signal:
                raise
            raise EndedBySignal(self.signal) from None
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        at_once = self.asked.is_set() or not self.orderly
        self.signal = int(number)
        self.asked.set()
        if at_once and self._task is not None:
            self._task.cancel()
