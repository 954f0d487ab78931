"""`fetch`: the outputs of jobs that were submitted from another machine, and `submit --wait` for such jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from pool.cli import formats
from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem, select

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.results import Result
    from pool.client.spooling import FetchResult


def fetch(
    jobs: Annotated[list[str], CommandArgument(metavar="JOB", help="Clusters (12) and jobs (12.3).")],
    into: Annotated[
        str | None,
        CommandOption("--to", metavar="DIR", help="Put all outputs into this new directory instead."),
    ] = None,
    keep: Annotated[
        bool, CommandOption("--keep", help="Leave the jobs in the queue and their outputs at the schedd.")
    ] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Fetch the outputs of jobs that were submitted from another machine.

    Each output goes where the description says, as if the job had been submitted on this machine. A job that has
    ended then leaves the queue; until it is fetched it waits there, for ten days (SPOOL_KEPT at the schedd).

    \b
    Exit status: 0 all were fetched, 1 some have not ended
    On another machine than they were submitted from, --to DIR is needed.

    \b
    Examples:
      poolnode fetch 12
      poolnode wait 12.3 && poolnode fetch 12.3
      poolnode fetch 12 --keep --to results
    """
    chosen = select(jobs)
    if chosen.owners:
        raise UsageProblem(f"fetch: '{chosen.owners[0]}' is no job", hint="name clusters (12) and jobs (12.3)")

    async def question(pool: Pool) -> FetchResult:
        from pool.cli.progress import Working

        with Working("fetching outputs") as working:
            return await pool.fetch(chosen.ids, into, keep=keep, progress=working.update)

    fetched = query_pool(address, question, working="")
    if as_json:
        print_json({"id": f"{job[0]}.{job[1]}", "fetched": True} for job in fetched.jobs)
        print_json({"id": job, "fetched": False, "why": why} for job, why in fetched.refused)
    else:
        files = formats.amount(fetched.files, "file")
        print_lines([f"{formats.amount(len(fetched.jobs), 'job')} fetched: {files}, {fetched.size:,} bytes"])
        for name, got in fetched.beside[:20]:
            print_error(f"poolnode: {formats.one_line(name)} is no job's output: what came is {formats.one_line(got)}")
        for job, why in fetched.refused[:20]:
            print_error(f"poolnode: {job}: {formats.one_line(why)}")
    return 1 if fetched.refused else 0


async def wait_and_fetch(pool: Pool, ids: list[tuple[int, ...]], *, quiet: bool) -> list[Result]:
    """Wait until jobs have ended, or all that are left are held, and bring the outputs of each here as it ends."""
    from pool.cli.progress import Board
    from pool.client.waiting import wait_for

    board = Board(quiet=quiet, every=30.0)
    fetched: set[tuple[int, int]] = set()

    async def fetch_results() -> None:
        async for result in pool.as_completed(ids):
            if result.state == "completed":
                await pool.fetch([(result.cluster, result.proc)])
                fetched.add((result.cluster, result.proc))

    bringing = asyncio.ensure_future(fetch_results())
    waiting = asyncio.ensure_future(wait_for(pool, ids, progress=board, until_stuck=True))
    try:
        await asyncio.wait([bringing, waiting], return_when=asyncio.FIRST_COMPLETED)
        if bringing.done():
            bringing.result()  # raises what kept an output from coming here
        results = await waiting
        if any(result.state == "held" for result in results):
            bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)
        completed = [(result.cluster, result.proc) for result in results if result.state == "completed"]
        if left := [job for job in completed if job not in fetched]:
            await pool.fetch(left)
    finally:
        board.close()
        bringing.cancel()
        waiting.cancel()
    return results
