"""`ssh`: a shell in a running job; `attach`: a job's output and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

from pool.cli.common import print_error, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption
from pool.cli.selection import one_job
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool


def ssh(
    job: Annotated[str, CommandArgument(metavar="JOB", help="A job (12.3); or a cluster, for its first job.")],
    command: Annotated[
        list[str] | None,
        CommandArgument(metavar="[--] [COMMAND ...]", help="Run this with /bin/sh instead of a shell to type into."),
    ] = None,
    terminal: Annotated[
        bool | None,
        CommandOption(
            "--terminal/--no-terminal", "-t/-T", help="With one or without. Default: as here, none with a command."
        ),
    ] = None,
    node: Annotated[int, CommandOption("--node", min=0, metavar="N", help="Of a parallel job: node N.")] = 0,
    address: Address = None,
) -> int:
    """Open a shell inside a running job of yours.

    A job that has no machine yet is waited for.

    It sees what the job sees (files, processes, network, devices, environment), has the job's rights and limits,
    and counts as part of it. It ends with the job. While it is open the job is not checkpointed; a job that has to
    leave its machine ends it. Enter, ~ and . end the connection. The exit status is the shell's.

    \b
    Examples:
      poolnode ssh 12.3
      poolnode ssh 12.3 -- ls -l
      poolnode ssh 12 --node 1
      poolnode ssh 12.3 -- tar cz results > results.tar.gz
    """
    chosen = one_job(job)
    whole = chosen if len(chosen) == 2 else (chosen[0], 0)
    here = os.isatty(0) and os.isatty(1)
    wanted = (here and not command) if terminal is None else terminal
    if wanted and not os.isatty(0):
        raise PoolError("standard input is no terminal", hint="leave -t out")
    from pool.client.terminal import shell_here

    line = command[0] if command and len(command) == 1 else shlex.join(command or ())
    number = whole[0], whole[1]

    async def question(pool: Pool) -> int:
        told = False
        while True:
            try:
                return await shell_here(pool, number, line, terminal=wanted, node=node)
            except PoolError:
                if not await _started(pool, number, told=told):
                    raise
                told = True

    return query_pool(address, question, working="")


async def _started(pool: Pool, job: tuple[int, int], *, told: bool) -> bool:
    """Wait for the start of a job that waits for a machine; False at once for any other.

    Args:
        told: the user knows that it waits.
    """
    async with contextlib.aclosing(pool.events(ids=[job], after=None)) as events:
        await anext(events)  # from now on none is missed
        if (await pool.job(*job).result()).state != "idle":
            return False
        if not told:
            name = f"{job[0]}.{job[1]}"
            print_error(f"waiting for job {name} to start (`poolnode why {name}`; Ctrl-C ends the waiting)")
        async for some in events:
            if any(event["kind"] == "EXECUTE" for event in some):
                return True
            if any(event["kind"] in ("HELD", "ABORTED") for event in some):
                return False
    return False


def attach(
    job: Annotated[str, CommandArgument(metavar="JOB", help="A job (12.3); or a cluster, for its first job.")],
    lines: Annotated[
        int, CommandOption("--lines", "-n", min=0, metavar="N", help="Begin so many lines before the end.")
    ] = 10,
    node: Annotated[int, CommandOption("--node", min=0, metavar="N", help="Of a parallel job: node N.")] = 0,
    address: Address = None,
) -> int:
    """Show a running job's output and errors as they come, until it has ended.

    Its output goes to standard output, its errors to standard error. The exit status is the job's, or 128 and the
    number of the signal that ended it; 1 if it was removed. Ctrl-C leaves the job alone.

    \b
    Examples:
      poolnode attach 12.3
      poolnode attach 12.3 --lines 0
    """
    chosen = one_job(job)
    cluster, proc = chosen if len(chosen) == 2 else (chosen[0], 0)

    async def follow(pool: Pool, file: str, to: int) -> None:
        async for piece in pool.tail(cluster, proc, file=file, lines=lines, node=node):
            os.write(to, piece)

    async def question(pool: Pool) -> int:
        ends = await asyncio.gather(follow(pool, "out", 1), follow(pool, "err", 2), return_exceptions=True)
        if all(isinstance(end, BaseException) for end in ends) and isinstance(ends[0], BaseException):
            raise ends[0]  # it may keep one of the two
        result = await pool.job(cluster, proc).result()
        if result.state == "completed":
            return 128 + result.signal if result.signal is not None else result.exit_code or 0
        print_error(f"poolnode: job {result.job} is {result.state}{': ' if result.reason else ''}{result.reason}")
        return 1

    sys.stdout.flush()
    return query_pool(address, question, working="")
