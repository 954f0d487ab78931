"""`run`: a pool of this machine alone, for the time one description's jobs take.

It starts a personal node in this process, submits, shows the progress of the jobs, and leaves nothing behind but the
jobs' own output. The work of a node is done elsewhere; this is its shortest user.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pool.cli.common import names_and_values, print_json, print_lines, run_loop
from pool.cli.options import CommandOption, Json
from pool.cli.submit import Extra, File, read, warn


def run(
    file: File,
    extra: Extra = None,
    slots: Annotated[
        int | None,
        CommandOption("--slots", "-s", min=1, metavar="N", help="Run N jobs at a time. Default: one per processor."),
    ] = None,
    keep: Annotated[
        Path | None,
        CommandOption("--keep", metavar="DIR", help="Keep the pool's state there (queue, history, event log)."),
    ] = None,
    every: Annotated[bool, CommandOption("--all", help="List every job at the end, however many.")] = False,
    quiet: Annotated[bool, CommandOption("--quiet", "-q", help="No progress; only the table.")] = False,
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
      poolnode run sweep.sub --keep state           queue and history stay there
    """
    from pool.cli.running import run_here
    from pool.client.descriptions import describe

    text, name, where = read(file)
    description = describe(text, name=name, iwd=where, extra=names_and_values(extra))
    warn(description)
    with _state(keep) as directory:
        results, stopped, seconds = run_loop(run_here(description, directory, slots, quiet or as_json))
    if as_json:
        print_json(result.as_json() for result in results)
    else:
        from pool.cli.results import ending

        print_lines(ending(results, seconds, every=every))
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
