"""`condor_tail` and `condor_transfer_data`: the outputs of jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_schedd, print_error, selection
from pool.compat.options import Option, parse
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

TAIL = (
    Option("maxbytes", 1, 1),
    Option("auto-retry", 1, refused="a job that has not begun has no output yet; poolnode tail -f JOB waits for it"),
    Option("follow", 1),
    Option("stderr", 4),
    Option("no-stdout", 4),
    Option("pool", 1, 1),
    Option("name", 2, 1),
    Option("help", 1),
    Option("version", 1),
)
#: Bytes that are shown at most, as condor_tail has it.
MOST = 1024


def tail(words: Sequence[str]) -> int:
    """Run `condor_tail`; returns its exit status."""
    given = parse(TAIL, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_tail", TAIL, given, "cluster.proc [file]")
    if not given.words:
        raise PoolError("no job is named", hint="condor_tail 12.0")
    if len(given.words) > 1:
        raise PoolError(f"{given.words[1]}: only standard output and error can be followed", hint="-stderr")
    ids = selection(given.words[:1]).get("ids")
    if not ids:
        raise PoolError(f"{given.words[0]} is not the id of a job", hint="condor_tail 12.0")
    cluster, proc = (*ids[0], 0)[:2]
    files = ([] if given.has("no-stdout") else ["out"]) + (["err"] if given.has("stderr") else [])
    most = int(given.value("maxbytes") or MOST)

    async def question(pool: Pool) -> None:
        for file in files:
            if given.has("follow"):
                async for piece in pool.tail(cluster, proc, file=file, lines=10):
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
                continue
            last = b""
            async for piece in pool.tail(cluster, proc, file=file, follow=False):
                last = (last + piece)[-most:]
            sys.stdout.buffer.write(last)
            sys.stdout.buffer.flush()

    ask_schedd(given.value("pool"), given.value("name"), question)
    return 0


TRANSFER = (
    Option("all", 1),
    Option("constraint", 1, 1),
    Option("address", 2, 1, key="pool"),
    Option("name", 1, 1),
    Option("pool", 1, 1),
    Option("help", 1),
    Option("version", 1),
)


def transfer_data(words: Sequence[str]) -> int:
    """Run `condor_transfer_data`; returns its exit status."""
    given = parse(TRANSFER, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_transfer_data", TRANSFER, given, "[cluster | cluster.proc | user] ...")
    if not (given.words or given.all_of("constraint") or given.has("all")):
        raise PoolError("no jobs are named", hint="condor_transfer_data 12, or -all")

    async def question(pool: Pool) -> int:
        from pool.client.descriptions import user_name

        words = given.words or ([] if given.all_of("constraint") else [user_name()])
        asked = selection(words, given.all_of("constraint")) | {"attributes": ["ClusterId", "ProcId"]}
        ids = [(ad["ClusterId"], ad["ProcId"]) for ad in await pool.gather("schedd.query", asked)]
        if not ids:
            print_error("Couldn't find jobs: " + " ".join(given.words))
            return 1
        fetched = await pool.fetch(ids)
        print(f"Fetched data files of {len(fetched.jobs)} job(s): {fetched.files} file(s), {fetched.size} bytes")
        for job, why in fetched.refused:
            print_error(f"{job}: {why}")
        return 1 if fetched.refused else 0

    return ask_schedd(given.value("pool"), given.value("name"), question)
