"""Whether a job that opens its files in place may have a /tmp of its own: not where it was given a file there.

Its names are judged as they are written. No link is followed, since the file system is the job's user's and may hang.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pool.starter.spec import Member

#: The machine's directories that every user may write to (pool/checkpoint/sandbox/namespaces.c).
DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")
#: One of these stands in each name below them, however it is written.
_PARTS = ("tmp", "shm")


class NamedFiles(NamedTuple):
    """The names that one process of a job is given.

    Attributes:
        cwd: its initial directory.
        files: its standard files, and its program where that is not its first argument.
        argv: its arguments, the program first.
    """

    cwd: str
    files: Sequence[str]
    argv: Sequence[str]

    @classmethod
    def of(cls, process: Member) -> NamedFiles:
        """The names of one of a job's processes."""
        return cls(process.cwd, (process.stdin, process.stdout, process.stderr, process.program), process.argv)


def names_a_file_there(processes: Iterable[NamedFiles], scratch: str) -> bool:
    """Whether the initial directory, the program, an argument or a standard file of one of the processes lies there.

    An argument is a name itself, or behind the first equals sign (--cache=/tmp/x). The directories themselves as
    arguments are none of these files (sort -T /tmp).

    Args:
        scratch: the job's scratch directory, which is seen wherever it lies.
    """
    return any(_named(each, scratch) for each in processes)


@functools.lru_cache(maxsize=16)  # jobs that begin one after the other are mostly alike
def _named(process: NamedFiles, scratch: str) -> bool:
    cwd = process.cwd
    if _lies_there(cwd, cwd, scratch, DIRECTORIES):
        return True
    words = [name for name in (*process.files, *process.argv) if "/" in name]  # the rest is in the initial directory
    words += [name.partition("=")[2] for name in words if "=" in name]
    return any(_lies_there(name, cwd, scratch) for name in words)


def _lies_there(name: str, cwd: str, scratch: str, themselves: Iterable[str] = ()) -> bool:
    if "/" not in name:
        return False
    path = os.path.join(cwd, name)
    if not any(part in path for part in _PARTS):
        return False
    path = os.path.normpath(path)
    if path.startswith("//"):
        path = path[1:]
    if scratch and (path == scratch or path.startswith(f"{scratch}/")):
        return False
    return path in themselves or any(path.startswith(f"{directory}/") for directory in DIRECTORIES)
