"""`wait` and `tail`: following jobs until they have ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem, one_job, seconds, select
from pool.errors import PoolError

#: Exit status of `wait` when all that is left is held.
ALL_HELD = 3

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.results import Result
    from pool.client.tally import Tally


def wait(
    jobs: Annotated[list[str], CommandArgument(metavar="JOB", help="Clusters (12), jobs (12.3) and users.")],
    timeout: Annotated[
        str | None,
        CommandOption("--timeout", "-t", metavar="TIME", help="Give up after 90, 30s, 15m, 2h or 7d."),
    ] = None,
    through_holds: Annotated[
        bool, CommandOption("--through-holds", help="Go on waiting when all that is left is held.")
    ] = False,
    every: Annotated[bool, CommandOption("--all", help="List every job at the end, however many.")] = False,
    quiet: Annotated[bool, CommandOption("--quiet", "-q", help="Only the exit status.")] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Wait until jobs have ended, or until all that is left is held.

    \b
    Exit status: 0 all succeeded, 1 some did not (or the time was up),
                 3 all that is left is held, and nothing releases it by itself
    Ctrl-C ends the waiting, not the jobs.

    \b
    Examples:
      poolnode wait 12
      poolnode wait 12.3 13 --timeout 2h
      poolnode wait 12 --json | jq 'select(.ok | not)'
      poolnode submit -q a.sub | xargs poolnode wait && echo all well
    """
    limit = None if timeout is None else seconds(timeout)
    chosen = select(jobs)
    results: list[Result] = []

    async def question(pool: Pool) -> list[Result]:
        import asyncio

        from pool.cli.progress import Board
        from pool.client.waiting import wait_for

        ids: list[tuple[int, ...]] = list(chosen.ids)
        for owner in chosen.owners:
            found = await pool.gather("schedd.query", {"owner": owner, "attributes": ["ClusterId", "ProcId"]})
            if not found:
                raise PoolError(f"{owner} has no jobs in the queue", hint="`poolnode q` lists them")
            ids += [(ad["ClusterId"], ad["ProcId"]) for ad in found]
        board = Board(quiet=quiet or as_json, every=30.0)
        warned = False

        def progress(tally: Tally) -> None:
            nonlocal warned
            board(tally)
            if tally.only_held and not warned and through_holds:
                warned = True
                board.print_note("all that is left is held: `poolnode q --held` says why, release lets it go on")

        try:
            async with asyncio.timeout(limit):
                while True:
                    reached = await wait_for(pool, ids, progress=progress, until_stuck=not through_holds)
                    held = [(result.cluster, result.proc) for result in reached if result.state == "held"]
                    if not held or not await _release_themselves(pool, held):
                        return reached
                    async for events in pool.events(ids=held, after=None):
                        if events or not await _all_held(pool, held):
                            break
        finally:
            board.close()

    try:
        results = query_pool(address, question, working="")
    except TimeoutError:
        raise PoolError(f"{', '.join(jobs)}: not ended after {timeout}", hint="the jobs go on") from None
    return show(results, quiet=quiet, as_json=as_json, every=every)


def show(results: list[Result], *, quiet: bool, as_json: bool = False, every: bool = False) -> int:
    """Print how jobs have ended; the exit status that says it."""
    if as_json:
        print_json(result.as_json() for result in results)
    elif not quiet:
        from pool.cli.results import ending

        print_lines(ending(results, None, every=every))
    if any(result.state == "held" for result in results):
        if not as_json:
            print_error(
                "poolnode: all that is left is held (`poolnode q --held` says why, `poolnode release` lets it go on)"
            )
        return ALL_HELD
    return 0 if all(result.ok for result in results) else 1


async def _all_held(pool: Pool, jobs: list[tuple[int, int]]) -> bool:
    from pool.client.tally import HELD

    ads = await pool.find(jobs, ("ClusterId", "ProcId", "JobStatus"), patient=True)
    return all(ad.get("JobStatus") == HELD for ad in ads)


async def _release_themselves(pool: Pool, held: list[tuple[int, int]]) -> bool:
    """Whether one of these jobs may be released without anybody's doing (periodic_release)."""
    ads = await pool.find(held, ("ClusterId", "ProcId", "PeriodicRelease"))
    return any(str(ad.get("PeriodicRelease", False)).strip("[]'").lower() not in ("false", "0") for ad in ads)


def tail(
    job: Annotated[str, CommandArgument(metavar="JOB", help="A job (12.3); or a cluster, if it has one job.")],
    error: Annotated[bool, CommandOption("--err", "-e", help="Its standard error instead.")] = False,
    follow: Annotated[
        bool, CommandOption("--follow", "-f", help="Go on as it grows, until the job has ended.")
    ] = False,
    lines: Annotated[
        int, CommandOption("--lines", "-n", min=0, metavar="N", help="Begin N lines before the end.")
    ] = 10,
    whole: Annotated[bool, CommandOption("--all", help="Begin at the beginning.")] = False,
    node: Annotated[int, CommandOption("--node", min=0, metavar="N", help="Of a parallel job: node N's.")] = 0,
    address: Address = None,
) -> int:
    """Show the end of a job's output, also while it runs, wherever it runs.

    \b
    Examples:
      poolnode tail 12.3
      poolnode tail -f 12.3            until it has ended
      poolnode tail --all --err 12.3
      poolnode tail --node 3 12        of a parallel job
    """
    chosen = one_job(job)

    async def question(pool: Pool) -> None:
        cluster, proc = await _chosen_job(pool, chosen)
        await _tail(pool, cluster, proc, "err" if error else "out", None if whole else lines, follow, node)

    query_pool(address, question, working="")
    return 0


async def _chosen_job(pool: Pool, chosen: tuple[int, ...]) -> tuple[int, int]:
    """The job that is meant; of a cluster there must be only one."""
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    found = await pool.find([chosen], ("ClusterId", "ProcId"))
    if not found:
        raise PoolError(f"there is no cluster {chosen[0]}", hint="`poolnode q` and `history` list them")
    if len(found) > 1:
        raise UsageProblem(
            f"cluster {chosen[0]} has {len(found):,} jobs", hint=f"name one: poolnode tail {chosen[0]}.0"
        )
    return found[0]["ClusterId"], found[0]["ProcId"]


async def _tail(pool: Pool, cluster: int, proc: int, file: str, lines: int | None, follow: bool, node: int) -> None:
    out = sys.stdout.buffer
    async for piece in pool.tail(cluster, proc, file=file, lines=lines, follow=follow, node=node):
        out.write(piece)
        out.flush()
