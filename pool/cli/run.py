"""`run`: a pool of this machine alone, for the time one description's jobs take.

It starts a personal node in this process, submits, shows how the jobs come along, and leaves nothing behind
but the jobs' own output. What a node does is not here; this is its shortest user.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pool.cli.common import Json, names_and_values, run_loop, say, say_json
from pool.cli.submit import Extra, File, read, warn

if TYPE_CHECKING:
    from pool.cli.progress import Board
    from pool.client.pool import Pool
    from pool.client.results import Result
    from pool.jobs.description import Description

LEAVING = 30.0  # seconds that removed jobs get to go before they are left to their leases


def run(
    file: File,
    extra: Extra = None,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots", "-s", min=1, metavar="N", help="Run N jobs at a time. Default: one per processor."
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", help="Keep the pool's state there (queue, history, event log)."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List every job at the end, however many.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the table.")] = False,
    as_json: Json = False,
) -> int:
    """Run a job description on this machine and show its results.

    Nothing has to be set up, and nothing is left behind but what the jobs write. The exit status is 0 only if
    every job succeeded. Ctrl-C removes the jobs and ends with status 130.

    \b
    Examples:
      poolnode run sweep.sub
      poolnode run sweep.sub --slots 2
      poolnode run sweep.sub request_memory=1GB     a command for this run only
      poolnode run sweep.sub --json | jq 'select(.ok | not)'
      poolnode run sweep.sub --keep state && POOLNODE_STATE=state poolnode --roles schedd
    """
    from pool.client.descriptions import describe

    text, name, where = read(file)
    description = describe(text, name=name, iwd=where, extra=names_and_values(extra))
    warn(description)
    with _state(keep) as directory:
        results, stopped, seconds = run_loop(_run(description, directory, slots, quiet or as_json))
    if as_json:
        say_json(result.as_json() for result in results)
    else:
        from pool.cli.results import ending

        say(ending(results, seconds, every=every))
    if stopped:
        return 128 + stopped
    return 0 if results and all(result.ok for result in results) else 1


@contextlib.contextmanager
def _state(keep: Path | None) -> Iterator[Path]:
    """The directory of the personal pool: the user's, or one that is gone afterwards."""
    if keep is not None:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield keep.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="poolnode-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run(
    description: Description, state: Path, slots: int | None, quiet: bool
) -> tuple[list[Result], int, float]:
    """Runs the jobs; returns their results, the signal that stopped them (0 if none), the seconds it took."""
    from pool.cli.progress import Board, Working
    from pool.client.pool import Pool
    from pool.node import personal

    loop = asyncio.get_running_loop()
    began = loop.time()
    stop = _Stop()
    with stop.listening():
        async with contextlib.AsyncExitStack() as stack:
            with Working("starting a pool on this machine"):
                address = await stack.enter_async_context(personal(state, slots=slots))
                pool = await stack.enter_async_context(await Pool.connect(address))
            with Working("submitting"):
                clusters = await pool.submit_all(description)
            board = Board(quiet=quiet)
            try:
                jobs = _known(description, [cluster.id for cluster in clusters])
                results = await _follow(pool, jobs, board, stop, waits=_releases_itself(description))
            finally:
                board.close()
            return results, stop.signal, loop.time() - began


def _known(description: Description, clusters: list[int]) -> dict[tuple[int, int], int]:
    """The jobs that were submitted and the state each begins in (idle, or held at submission)."""
    jobs = {}
    for cluster, draft in zip(clusters, description.clusters, strict=True):
        state = draft.ad.value("JobStatus", 1)
        for proc in range(draft.count):
            jobs[cluster, proc] = state if isinstance(state, int) else 1
    return jobs


def _releases_itself(description: Description) -> bool:
    """Whether a held job may come back without anybody's doing."""
    for draft in description.clusters:
        release = draft.ad.get("PeriodicRelease")
        if release is not None and release.text.strip().lower() not in ("false", "0"):
            return True
    return False


async def _follow(
    pool: Pool, jobs: dict[tuple[int, int], int], board: Board, stop: _Stop, *, waits: bool
) -> list[Result]:
    from pool.client.handles import wait_for

    ids = sorted({(cluster,) for cluster, _ in jobs})
    stop.orderly = True
    waiting = asyncio.ensure_future(wait_for(pool, ids, jobs, progress=board, until_stuck=not waits))
    stopping = asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            board.note("removing the jobs; once more to leave them at once")
            await pool.act("remove", ids=ids, reason="interrupted")
            await asyncio.wait({waiting}, timeout=LEAVING)
        if waiting.done():
            return waiting.result()
        return [result for (cluster,) in ids for result in await pool.cluster(cluster).results()]
    finally:
        for task in (waiting, stopping):
            task.cancel()


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
            loop.add_signal_handler(number, self._heard, number)
        try:
            yield
        except asyncio.CancelledError:
            if not self.signal:
                raise
            raise typer.Exit(128 + self.signal) from None
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def _heard(self, number: int) -> None:
        at_once = self.asked.is_set() or not self.orderly
        self.signal = int(number)
        self.asked.set()
        if at_once and self._task is not None:
            self._task.cancel()
