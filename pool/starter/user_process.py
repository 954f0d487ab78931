"""One piece of work done by a Python process of its own, as the job's user, in a directory that it is handed open.

The process runs a module of this package. It gets its work as JSON on standard input, so that nobody reads it in the
list of processes, and answers as JSON. It is killed when the job is not wanted any more, and it dies with the
node.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pool
from pool.identity import become
from pool.starter.place import UnixAccount

#: Where this program is, for the process that is started.
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(pool.__file__)))
#: Characters of its last error that are shown.
LONGEST_ERROR = 200
_PR_SET_PDEATHSIG = 1
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


class Stopped(Exception):
    """The job is not wanted any more; nothing of the process is left."""


class Died(Exception):
    """The process ended without an answer; the text names the program, and the error that it wrote last."""

    def __init__(self, written: bytes) -> None:
        lines = written.decode(errors="replace").strip().splitlines()
        error = "".join(letter for letter in lines[-1] if letter.isprintable())[:LONGEST_ERROR] if lines else "no error"
        way_out = ""
        if closed := _closed_directory():
            way_out = f", which lies below {closed}, closed to users: install poolnode where all users can read"
        super().__init__(f"died: {error} (its program is {sys.executable}{way_out})")


def _closed_directory() -> str | None:
    """A directory above this program, or above Python's modules, that not every user may enter."""
    for file in (os.path.realpath(sys.executable), os.path.realpath(os.__file__), os.path.realpath(pool.__file__)):
        for directory in reversed(Path(file).parents):
            if not directory.stat().st_mode & stat.S_IXOTH:
                return str(directory)
    return None


async def run_module(
    module: str, work: Mapping[str, Any], directory: int, account: UnixAccount, path: str, leaves: asyncio.Event
) -> dict[str, Any]:
    """Have a module do some work; its answer.

    Args:
        directory: a descriptor of the directory in which it works.
        path: where it looks for programs.
        leaves: set when the job is not wanted here any more.

    Raises:
        Stopped, Died: there is no answer.
    """
    identity = [account.uid, account.gid, list(account.groups or ())] if account.switch else None
    environ = {"PYTHONPATH": _HOME, "PATH": path, "LANG": "C.UTF-8"}
    environ |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-s", "-P", "-m", module, str(directory)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        pass_fds=(directory,),
        start_new_session=True,
    )
    given = json.dumps({**work, "identity": identity, "parent": os.getpid()})
    talking = asyncio.ensure_future(process.communicate(given.encode()))
    leaving = asyncio.ensure_future(leaves.wait())
    try:
        await asyncio.wait((talking, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            raise Stopped
    finally:
        leaving.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait((talking,))
    said, errors = talking.result()
    try:
        answer = json.loads(said)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Died(errors)
    return answer


def read_work() -> dict[str, Any]:
    """In the process: the work, after it has gone to the directory and become the user."""
    work: dict[str, Any] = json.load(sys.stdin)
    os.fchdir(int(sys.argv[1]))
    if work["identity"] is not None:
        become(*work["identity"])
    die_with(work["parent"])
    os.umask(0o022)
    return work


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (PR_SET_PDEATHSIG of prctl(2)); a change of the user ends
    that, so it is asked for behind it. Where the parent is dead already, this process ends.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the node that wanted this work is dead")
