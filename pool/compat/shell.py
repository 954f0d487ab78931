"""`condor_ssh_to_job`: a shell, or a command, in a running job; `poolnode ssh` with HTCondor's words."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_schedd
from pool.compat.options import Option, parse
from pool.decimals import whole_number
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

_NO_SSH = "the shell comes over the nodes' own connection, without ssh; "
OPTIONS = (
    Option("auto-retry", 1),
    Option("remove-on-interrupt", 1),
    Option("pool", 1, 1),
    Option("name", 2, 1),
    Option("debug", 1),
    Option("ssh", 2, 1, refused=f"{_NO_SSH}for files: condor_ssh_to_job JOB tar cz FILE... > FILE.tar.gz"),
    Option("keygen-options", 1, 1, refused=f"{_NO_SSH}so no key is made"),
    Option("shells", 2, 1, refused="the job's own shell is taken; another one as a command: condor_ssh_to_job JOB zsh"),
    Option("X", 1, refused=f"{_NO_SSH}and X11 is not forwarded"),
    Option("help", 1),
    Option("version", 1),
)
#: Seconds between two looks whether the job runs, with -auto-retry.
PAUSE = 1.0
RUNNING = 2


def ssh_to_job(words: Sequence[str]) -> int:
    """Run `condor_ssh_to_job`; returns the exit status of the shell or of the command."""
    place = _place_of_job(words)
    given = parse(OPTIONS, words[:place])
    if given.has("help") or given.has("version"):
        return help_or_version("condor_ssh_to_job", OPTIONS, given, "cluster.process[.node] [command]")
    if place == len(words):
        raise PoolError("no job is named", hint="condor_ssh_to_job 12.0")
    cluster, proc, node = _job(words[place])
    command = " ".join(words[place + 1 :])  # as ssh has it: the shell there reads one line

    async def question(pool: Pool) -> int:
        from pool.client.terminal import shell_here

        if given.has("auto-retry"):
            try:
                await _until_it_runs(pool, cluster, proc)
            except asyncio.CancelledError:
                if given.has("remove-on-interrupt"):
                    await pool.job(cluster, proc).remove()
                raise
        terminal = not command and os.isatty(0) and os.isatty(1)
        return await shell_here(pool, (cluster, proc), command, terminal=terminal, node=node)

    return ask_schedd(given.value("pool"), given.value("name"), question)


def _place_of_job(words: Sequence[str]) -> int:
    """Where the job is named: the first word that is no option and no option's value. What follows is the command."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option = next((one for one in OPTIONS if one.matches(words[at])), None)
        at += 1 + (option.values if option else 0)
    return min(at, len(words))


def _job(text: str) -> tuple[int, int, int]:
    """The cluster, process and node of `12`, `12.0` or `12.0.1`."""
    numbers = [whole_number(part) for part in text.split(".")]
    if len(numbers) > 3 or any(number is None for number in numbers):
        raise PoolError(f"{text} is not the id of a job", hint="condor_ssh_to_job 12.0")
    cluster, proc, node = (*(number or 0 for number in numbers), 0, 0)[:3]
    return cluster, proc, node


async def _until_it_runs(pool: Pool, cluster: int, proc: int) -> None:
    told = False
    while True:
        ads = await pool.jobs(ids=[(cluster, proc)], attributes=["JobStatus"])
        if not ads or ads[0].value("JobStatus", 0) == RUNNING:
            return
        if not told:
            print(f"job {cluster}.{proc} does not run yet: waiting", file=sys.stderr, flush=True)
            told = True
        await asyncio.sleep(PAUSE)
