"""`condor_wait`: until the jobs of an event log have ended.

It follows the log as HTCondor's does, so that it needs no pool; the log is looked at whenever it has grown.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from pool.compat.actions import help_or_version
from pool.compat.event_log import ENDS, SUBMITTED, LogReader
from pool.compat.options import Option, Parsed, parse
from pool.errors import PoolError

OPTIONS = (
    Option("wait", 1, 1),
    Option("num", 1, 1),
    Option("echo", 1, colon=True),
    Option("status", 1),
    Option("allevents", 3, key="all"),
    Option("help", 1),
    Option("version", 1),
)
#: Seconds between two looks at a log that is quiet.
LOOK = 0.1
#: Seconds within which a log has to have its job: the schedd writes it a moment after a submit has returned.
APPEARS = 5.0


def wait(words: Sequence[str]) -> int:
    """Run `condor_wait`; returns its exit status: 0 when all have ended, 1 when the time is up."""
    given = parse(OPTIONS, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_wait", OPTIONS, given, "LOG [cluster | cluster.proc]")
    if not 1 <= len(given.words) <= 2:
        raise PoolError("one log, and one job at most", hint="condor_wait job.log 12.0")
    path, job = Path(given.words[0]), given.words[1] if len(given.words) > 1 else ""
    chosen = _job(job)
    seconds, least = _number(given.value("wait"), "-wait"), _number(given.value("num"), "-num")
    return asyncio.run(_follow(given, path, chosen, seconds, least))


async def _follow(given: Parsed, path: Path, chosen: tuple[int, ...], seconds: int | None, least: int | None) -> int:
    reader, loop = LogReader(path), asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    patience = loop.time() + APPEARS
    while not reader.is_there:
        if loop.time() >= (patience if deadline is None else min(patience, deadline)):
            raise PoolError(f"Couldn't open {path}: No such file or directory")
        await asyncio.sleep(LOOK)
    running: set[tuple[int, int]] = set()
    seen, ended = False, 0
    while True:
        for event in reader.events():
            if chosen and (event.cluster, event.proc, event.subproc)[: len(chosen)] != chosen:
                continue
            if given.has("echo"):
                sys.stdout.write(event.whole + "...\n")
            one = (event.cluster, event.proc)
            if event.kind == SUBMITTED:
                seen = True
                running.add(one)
                _print_event(given.has("status"), event.cluster, event.proc, "submitted")
            elif event.kind in ENDS:
                seen = True
                running.discard(one)
                ended += 1
                _print_event(given.has("status"), event.cluster, event.proc, "ended")
        if least is not None and ended >= least:
            return 0
        if seen and not running and not given.has("all") and least is None:
            print("All jobs done.")
            return 0
        late = deadline is None and loop.time() >= patience
        if chosen and not seen and late:
            raise PoolError(f"the log {path} has no job {'.'.join(map(str, chosen))}")
        if not chosen and not seen and late and least is None and reader.offset:
            raise PoolError(f"the log {path} has no jobs")
        if deadline is not None and loop.time() >= deadline:
            print("Time expired.")
            return 1
        sys.stdout.flush()
        await asyncio.sleep(LOOK)


def _print_event(wanted: bool, cluster: int, proc: int, what: str) -> None:
    if wanted:
        print(f"{cluster}.{proc}.0 {what}")


def _job(text: str) -> tuple[int, ...]:
    from pool.decimals import has_digits_only

    parts = text.split(".") if text else []
    if len(parts) > 3 or not all(map(has_digits_only, parts)):
        raise PoolError(f"Couldn't understand job number: {text}", hint="12 or 12.0")
    return tuple(map(int, parts))


def _number(text: str | None, option: str) -> int | None:
    from pool.decimals import has_digits_only

    if text is None:
        return None
    if not has_digits_only(text) or not int(text):
        raise PoolError(f"{option} must be greater than zero")
    return int(text)
