"""`inspect`: what a running job does now, on whatever machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pool.cli import tables
from pool.cli.common import print_json, print_lines, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem, one_job, seconds
from pool.decimals import real_number

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.policy.inspection import Inspection

#: Seconds for which a job can be looked at.
LONGEST = 10.0


def inspect(
    job: Annotated[str, CommandArgument(metavar="JOB", help="A job (12.3); or a cluster, for its first job.")],
    threads: Annotated[bool, CommandOption("--threads", help="Each thread by itself.")] = False,
    calls: Annotated[
        bool, CommandOption("--calls", help="System calls, too (needs `pip install 'poolnode[inspect]'`).")
    ] = False,
    no_files: Annotated[bool, CommandOption("--no-files", help="Leave the open files out.")] = False,
    over: Annotated[
        str, CommandOption("--over", metavar="TIME", help="How long to look, to know rates; at most 10s.")
    ] = "0.5",
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Say what a running job does now: its processes, what each waits for, its files.

    For each process it shows processor time, load, memory, and bytes read and written in a second. It also shows what
    the threads wait for: another process at the other end of a pipe, a child, a lock, a connection, a disk, a time.
    Processes that wait for each other are named. Nothing of the job is stopped, and it works wherever the job runs.
    `why` says why a job does not start; this says why one that runs does not move.

    \b
    Examples:
      poolnode inspect 12.3
      poolnode inspect 12.3 --over 5s --no-files
      poolnode inspect 12.3 --threads --calls
      poolnode inspect 12.3 --json | jq '.parts[].processes[].command'
    """
    chosen = one_job(job)
    look = _duration(over)
    decode = None
    if calls:
        from pool.policy.inspection.decoding import decoder

        decode = decoder()

    async def question(pool: Pool) -> Inspection:
        return await pool.inspect(chosen if len(chosen) == 2 else (chosen[0], 0), look)

    found = query_pool(address, question)
    if as_json:
        print_json([found.to_json()])
    else:
        print_lines(
            found.lines(threads=threads or calls, files=not no_files, width=tables.terminal_width(), decode=decode)
        )
    return 0


def _duration(text: str) -> float:
    number = real_number(text)
    value = seconds(text) if number is None else number
    if not 0.0 <= value <= LONGEST:
        raise UsageProblem(f"--over {text}: a job is looked at for 0 to {LONGEST:g} seconds")
    return value
