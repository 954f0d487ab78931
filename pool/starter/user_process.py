"""One piece of work done by a Python process of its own, as the job's user, in a directory that it is handed open.

The process runs a module of this package. It gets its work as JSON on standard input, so that nobody reads it in the
list of processes, and answers as JSON. It is killed when the job is not wanted any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import pool
from pool.identity import become
from pool.starter.place import Account

#: Where this program is, for the process that is started.
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(pool.__file__)))
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


class Stopped(Exception):
    """The job is not wanted any more; nothing of the process is left."""


class Died(Exception):
    """The process ended without an answer."""


async def ask(
    module: str, work: Mapping[str, Any], directory: int, account: Account, path: str, leaves: asyncio.Event
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
        stderr=asyncio.subprocess.DEVNULL,
        env=environ,
        pass_fds=(directory,),
        start_new_session=True,
    )
    talking = asyncio.ensure_future(process.communicate(json.dumps({**work, "identity": identity}).encode()))
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
    try:
        answer = json.loads(talking.result()[0])
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Died
    return answer


def take_work() -> dict[str, Any]:
    """In the process: the work, after it has gone to the directory and become the user."""
    work: dict[str, Any] = json.load(sys.stdin)
    os.fchdir(int(sys.argv[1]))
    if work["identity"] is not None:
        become(*work["identity"])
    os.umask(0o022)
    return work
