"""`manifest`: lists of a job's directory, before and after its run, and its environment; they go to the submit side as
outputs.

HTCondor's names: a directory with the files `in`, `out` and `environment`. The job may have changed the directory
meanwhile, so that everything is done through descriptors, with its owner's rights.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from pool.jobs.activation import STDERR, STDOUT
from pool.safe_directory import SafeDirectory
from pool.starter.staging import Output, write_all
from pool.starter.unpacking import ROOT

IN, OUT, ENVIRONMENT = "in", "out", "environment"
#: Entries that one list has at most.
MOST = 100_000


def write_before(directory: str, scratch: SafeDirectory, environment: Mapping[str, str]) -> None:
    """List what the scratch directory holds before the job begins, and its environment. Raises OSError."""
    lines = _listed(scratch, directory)
    text = "".join(f"{name}={value}\0\n" for name, value in sorted(environment.items())).replace("\0", "")
    _write(scratch, f"{directory}/{IN}", lines)
    _write(scratch, f"{directory}/{ENVIRONMENT}", text)


def write_after(directory: str, scratch: SafeDirectory) -> list[Output]:
    """List what it holds after the end; what of the manifest goes to the submit side. Raises OSError."""
    _write(scratch, f"{directory}/{OUT}", _listed(scratch, directory))
    names = [name for one in (IN, OUT, ENVIRONMENT) if scratch.exists(name := f"{directory}/{one}")]
    return [Output(directory, directory, directory=True), *(Output(name, name) for name in names)]


def _write(scratch: SafeDirectory, name: str, text: str) -> None:
    file = scratch.create_file(name, 0o644)
    try:
        write_all(file, text.encode("utf-8", "surrogateescape"))
    finally:
        os.close(file)


def _listed(scratch: SafeDirectory, own: str) -> str:
    """A line for each entry, as `ls` has it: mode, bytes, time of the last change, name; the manifest itself is not."""
    lines: list[str] = []
    for name, status in _entries(scratch, own):
        if len(lines) == MOST:
            lines.append("...\n")
            break
        changed = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        shown = name.replace("\n", "\\n")
        lines.append(f"{stat.filemode(status.st_mode)} {status.st_size:>12} {changed} {shown}\n")
    return "".join(lines)


def _entries(scratch: SafeDirectory, own: str) -> Iterator[tuple[str, os.stat_result]]:
    pending = [""]
    while pending:
        above, inner = pending.pop(), []
        for entry, status, _ in sorted(scratch.entries(above), key=lambda one: one[0]):
            name = os.path.join(above, os.fsdecode(entry))
            if name in (own, STDOUT, STDERR, ROOT):
                continue
            yield name, status
            if stat.S_ISDIR(status.st_mode):
                inner.append(name)
        pending += reversed(inner)
