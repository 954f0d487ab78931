"""Whether a job that opens its files in place may have a /tmp of its own: not where it was given a file there.

Its names are judged as they are written. No link is followed, since the file system is the job's user's and may hang.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from pool.starter.spec import KeeperSpec, Member

#: The machine's directories that every user may write to (pool/checkpoint/sandbox/namespaces.c).
DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")


def names_a_file_there(spec: KeeperSpec) -> bool:
    """Whether the initial directory, the program, an argument or a standard file of one of its processes lies there.

    An argument is a name itself, or behind the first equals sign (--cache=/tmp/x). The directories themselves as
    arguments are none of these files (sort -T /tmp). The scratch directory is seen wherever it lies.
    """
    return any(_named(each, spec.scratch) for each in (spec.members or (spec,)))


def _named(process: KeeperSpec | Member, scratch: str) -> bool:
    files = (process.stdin, process.stdout, process.stderr, process.program)
    words = [*process.argv, *(word.partition("=")[2] for word in process.argv)]
    return _lies_there(process.cwd, process.cwd, scratch, DIRECTORIES) or any(
        _lies_there(name, process.cwd, scratch) for name in (*files, *words)
    )


def _lies_there(name: str, cwd: str, scratch: str, themselves: Iterable[str] = ()) -> bool:
    if "/" not in name:
        return False  # a file in the initial directory, or none
    path = os.path.normpath(os.path.join(cwd, name))
    if path.startswith("//"):
        path = path[1:]
    if scratch and (path == scratch or path.startswith(f"{scratch}/")):
        return False
    return path in themselves or any(path.startswith(f"{directory}/") for directory in DIRECTORIES)
