"""Inputs that are URLs: fetched on the execute machine before the job begins, by a process that became the job's user.

`http` and `https` are the machine's own, and objects of stores come by a URL that the submit side has signed; other
schemes belong to transfer programs of HTCondor's protocol, which TRANSFER_PLUGINS names. The process gets its work as
JSON on standard input, so that nobody reads a URL's password in the list of processes, and works in the job's
directory, which it is handed open. Its program is `url_process`: a node needs no module that speaks HTTP.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence

from pool.errors import PoolError
from pool.jobs.urls import name_of, without_secrets
from pool.starter import user_process
from pool.starter.place import UnixAccount

#: The schemes that every machine can fetch.
OWN = ("http", "https")
#: Those of object stores, whose URLs the submit side signs to be read by https.
SIGNED = ("s3", "gs")
#: Seconds in which a transfer program says what it can do.
MOMENT = 10.0
#: Bytes of what a transfer program says that are kept.
MOST_SAID = 4096
#: The program that fetches.
_PROCESS = "pool.starter.url_process"


class CannotFetch(PoolError):
    """An input could not be fetched; `retry` where the cause may pass."""


async def fetch(
    urls: Mapping[str, str],
    directory: int,
    account: UnixAccount,
    plugins: Mapping[str, str],
    most: int | None,
    leaves: asyncio.Event,
) -> int:
    """Fetch inputs into the job's directory, a descriptor of which is given; the bytes that came.

    Args:
        urls: what each is read by: itself, or a URL that the submit side has signed.
        plugins: the transfer program of each scheme that is not the machine's own.
        most: bytes that may come.
        leaves: set when the job is not wanted here any more.

    Raises:
        CannotFetch: with the URL, without what stands in it for a password.
    """
    work = {
        "urls": [[own, name_of(url), url] for url, own in urls.items()],
        "plugins": dict(plugins),
        "most": most,
    }
    try:
        answer = await user_process.run_module(
            _PROCESS, work, directory, account, "/usr/local/bin:/usr/bin:/bin", leaves
        )
    except user_process.Stopped:
        raise CannotFetch("the job was stopped while its inputs were fetched", retry=True) from None
    except user_process.Died as death:
        raise CannotFetch(without_secrets(f"the process that fetches inputs {death}"), retry=True) from None
    if "error" in answer:
        raise CannotFetch(str(answer["error"])[:MOST_SAID], retry=answer.get("passes") is True)
    return int(answer["bytes"])


def methods_of(programs: Sequence[str]) -> dict[str, str]:
    """Which program fetches which scheme, as the programs say themselves.

    Raises:
        PoolError: a program cannot be asked, or says no scheme.
    """
    found: dict[str, str] = {}
    for program in programs:
        try:
            done = subprocess.run([program, "-classad"], capture_output=True, text=True, timeout=MOMENT, check=True)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise PoolError(f"TRANSFER_PLUGINS: {program} does not say what it can do: {error}") from error
        said = {name.strip().lower(): value.strip() for name, _, value in map(_pair, done.stdout.splitlines())}
        schemes = [one.strip().lower() for one in said.get("supportedmethods", "").strip('"').split(",") if one.strip()]
        if not schemes:
            raise PoolError(f"TRANSFER_PLUGINS: {program} supports no method", hint="see its output for -classad")
        found.update(dict.fromkeys(schemes, program))
    return found


def _pair(line: str) -> tuple[str, str, str]:
    return line.partition("=")
