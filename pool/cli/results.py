"""How results are shown at the end of `run` and `wait`: a table, what went wrong, one line of sums.

Pure functions over `Result`s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pool.cli import formats, tables
from pool.client.results import Result
from pool.jobs.gangs import NODE_MARKS
from pool.jobs.pipes.model import end_in_words

MOST = 100  # rows shown unaskedly

TITLES = ("ID", "STATE", "EXIT", "WALL", "CPU", "WHERE", "OUTPUT")
PROCESS_TITLES = ("ID", "PROCESS", "END", "WALL", "CPU", "MEMORY")
PROCESS_RIGHT = (True, False, False, True, True, True)
FEW = 10  # jobs of several processes whose processes are shown too
RIGHT = (True, False, True, True, True, False, False)


def row(result: Result, here: str) -> list[str]:
    output = result.output
    if output is None:
        shown = formats.NOTHING
    else:
        shown = os.path.relpath(output, here) if output.startswith(here.rstrip("/") + "/") else output
        for mark in NODE_MARKS.values():
            shown = shown.replace(mark, "$(Node)")
    return [
        result.job,
        result.state,
        exit_of(result),
        formats.short_duration(result.wall),
        formats.short_duration(result.cpu),
        result.host or formats.NOTHING,
        formats.one_line(shown),
    ]


def processes(results: Sequence[Result], width: int | None) -> list[str]:
    """A table of the processes of jobs of several (VS 6.3.3)."""
    rows = [
        [
            result.job,
            str(end["name"]),
            formats.one_line(end_in_words(end)),
            formats.short_duration(end["wall"]),
            formats.short_duration(end["user_cpu"] + end["system_cpu"]),
            f"{end['max_rss'] / 1024:.1f} MB",
        ]
        for result in results
        for end in result.processes
    ]
    return ["", *tables.layout(PROCESS_TITLES, rows, right=PROCESS_RIGHT, width=width)] if rows else []


def exit_of(result: Result) -> str:
    if result.signal is not None:
        return f"signal {result.signal}"
    return formats.NOTHING if result.exit_code is None else str(result.exit_code)


def ending(
    results: Sequence[Result],
    seconds: float | None,
    *,
    every: bool = False,
    width: int | None = None,
    here: str | None = None,
) -> list[str]:
    """Lines to end with.

    All jobs have a row when there are few or `every` is set; otherwise those that failed, up to a hundred.
    """
    here = os.getcwd() if here is None else here
    width = tables.terminal_width() if width is None else width
    failed = [result for result in results if not result.ok]
    shown = list(results) if every or len(results) <= MOST else failed[:MOST]
    lines = []
    if shown:
        lines += tables.layout(TITLES, [row(result, here) for result in shown], right=RIGHT, width=width)
        if sum(bool(result.processes) for result in shown) <= FEW:
            lines += processes(shown, width)
        if len(shown) < len(results):
            left = len(results) - len(shown)
            lines.append(f"... and {left:,} more (--all lists each)")
    reasons = [
        f"{result.job} is {result.state}: {formats.one_line(result.reason)}" for result in failed if result.reason
    ]
    lines += [*([""] if reasons and lines else []), *reasons[:MOST]]
    if len(reasons) > MOST:
        lines.append(f"... and {len(reasons) - MOST:,} more like these")
    return [*lines, *([""] if lines else []), sums(results, seconds)]


def sums(results: Sequence[Result], seconds: float | None) -> str:
    """`15 jobs: 14 succeeded, 1 failed; 12.3 s, 1.2 jobs/s, 45.1 s of processor time`."""
    good = sum(result.ok for result in results)
    held = sum(result.state == "held" for result in results)
    removed = sum(result.state == "removed" for result in results)
    failed = sum(result.state == "completed" and not result.ok for result in results)
    other = len(results) - good - held - removed - failed
    words = [
        f"{count:,} {word}"
        for count, word in (
            (good, "succeeded"),
            (failed, "failed"),
            (held, "held"),
            (removed, "removed"),
            (other, "not ended"),
        )
        if count
    ]
    line = formats.amount(len(results), "job") + (f": {', '.join(words)}" if words else "")
    if seconds is None:
        return line
    parts = [formats.short_duration(seconds)]
    if seconds > 0 and len(results) > 1:
        parts.append(f"{len(results) / seconds:.1f} jobs/s")
    parts.append(f"{formats.short_duration(sum(result.cpu for result in results))} of processor time")
    return f"{line}; {', '.join(parts)}"
