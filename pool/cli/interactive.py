"""`submit --interactive`: a job that is a shell.

It has the resources that a description asks for, but runs no program: it waits for a shell, and ends with that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pool.cli.common import names_and_values, print_error, query_pool
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.handles import Cluster
    from pool.client.pool import Pool

#: Seconds for which the job waits for its shell.
WAITS = 600
#: Seconds for the job to end with its shell.
ENDS = 60.0
#: The job: it reads a pipe that the shell has open. When the shell has ended in whatever way, so has the job.
_PROGRAM = (
    "cd $_CONDOR_SCRATCH_DIR && mkfifo .interactive && "
    f"{{ (sleep {WAITS}; test -e .opened || kill $$) & cat .interactive > .status; "
    "read code < .status; exit ${code:-0}; }"
)
#: The shell's side.
_SHELL = (
    "p=$_CONDOR_SCRATCH_DIR/.interactive; while ! test -p $p; do sleep 0.1; done; touch $_CONDOR_SCRATCH_DIR/.opened; "
    "exec 9> $p; if test -x /bin/bash; then /bin/bash 9>&-; else /bin/sh 9>&-; fi; code=$?; echo $code >&9; exit $code"
)
_QUEUE = re.compile(r"^[ \t]*queue\b.*$", re.IGNORECASE | re.MULTILINE)


def interactive_text(text: str) -> str:
    """A description of one job that is a shell, with the resources of another."""
    commands = (
        "executable = /bin/sh",
        "transfer_executable = false",
        f"arguments = \"-c '{_PROGRAM}'\"",
        *("input =", "output =", "error ="),
        "checkpoint = off",
        "queue 1",
    )
    return "\n".join((_QUEUE.sub("", text), *commands, ""))


def submit_interactive(text: str, name: str, where: str, extra: list[str] | None, address: str | None) -> int:
    """Queue the job, wait for its machine, and give the terminal to its shell; the shell's exit code.

    Raises:
        PoolError: the description is refused, the job is held or removed, or there can be no shell in it.
    """
    import os

    from pool.client.descriptions import describe
    from pool.client.terminal import shell_here

    if not os.isatty(0):
        raise PoolError("standard input is no terminal", hint="leave --interactive out, and let a program do the work")
    description = describe(interactive_text(text), name=name, iwd=where, extra=names_and_values(extra))

    async def question(pool: Pool) -> int:
        cluster = await pool.submit(description)
        try:
            print_error(f"waiting for a machine for job {cluster.cluster}.0 (`poolnode why {cluster.cluster}.0`)")
            await _until_runs(cluster)
            try:
                code = await shell_here(pool, (cluster.cluster, 0), _SHELL, terminal=True)
            except PoolError as error:
                if not error.retry:
                    raise
                code = 255  # the connection ended before the job's machine could tell how the shell did
            (result,) = await cluster.wait(timeout=ENDS)  # with the shell
            return code if result.exit_code is None else result.exit_code
        except BaseException:
            await cluster.remove("its user has gone")
            raise

    return query_pool(address, question, working="")


async def _until_runs(cluster: Cluster) -> None:
    async for event in cluster.events():
        if event.kind.name == "EXECUTE":
            return
        if event.kind.name == "HELD" or event.kind.ends:
            why = str(event.data.get("why") or event.kind.name.lower())
            raise PoolError(f"job {cluster.cluster}.0 does not run: {why}")
