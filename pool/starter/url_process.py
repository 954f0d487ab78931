"""The process that fetches inputs which are URLs, as the job's user and in its directory (`urls` starts it)."""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from pool.decimals import whole_number
from pool.jobs.urls import scheme_of, without_secrets
from pool.starter import user_process
from pool.starter.urls import MOST_SAID, OWN, SIGNED

#: Seconds without a byte after which a server counts as gone.
SILENCE = 60.0
CHUNK = 256 * 1024
#: Answers of servers that are busy, and those of 500 and more that stay: not implemented, not this version.
BUSY, NEVER = (408, 425, 429), (501, 505)
#: Errors of the network that may pass.
NETWORK = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT)


class MayPass(OSError):
    """An input did not come this time."""


def main() -> None:
    """Fetch what standard input names into the directory whose descriptor is given."""
    work = user_process.read_work()
    answer: dict[str, Any] = {"bytes": 0}
    for url, name, called in work["urls"]:
        left = None if work["most"] is None else work["most"] - answer["bytes"]
        try:
            program = work["plugins"].get(scheme_of(url))
            answer["bytes"] += _by_program(program, url, name) if program else _by_http(url, name, left)
            if left is not None and os.stat(name).st_size > left:
                raise OSError(f"more than max_transfer_input_mb allows ({work['most'] >> 20})")
        except urllib.error.HTTPError as error:
            answer = {"error": f"cannot fetch {shown(called)}: the server answered {error.code} {error.reason}"}
            answer["passes"] = is_temporary(error)
            break
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            answer = {"error": f"cannot fetch {shown(called)}: {why}", "passes": is_temporary(error)}
            break
    if "error" in answer:  # a program may say the whole URL
        answer["error"] = without_secrets(str(answer["error"]))
    json.dump(answer, sys.stdout)


def is_temporary(error: Exception) -> bool:
    """Whether what kept an input from coming may pass by itself: the network, or a server in trouble."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in BUSY or (error.code >= 500 and error.code not in NEVER)
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        return is_temporary(error.reason)
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, (ConnectionError, TimeoutError, http.client.HTTPException, MayPass)):
        return True
    return isinstance(error, OSError) and error.errno in NETWORK


def shown(url: str) -> str:
    """A URL as others may read it: without user, password and query."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _by_http(url: str, name: str, left: int | None) -> int:
    if scheme_of(url) not in OWN:
        if scheme_of(url) in SIGNED:
            raise ValueError("the job names no keys of its store (aws_access_key_id_file, aws_secret_access_key_file)")
        raise ValueError(f"this machine fetches {', '.join(OWN)}, and what TRANSFER_PLUGINS names")
    total = 0
    with urllib.request.urlopen(_request(url), timeout=SILENCE) as answer:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        expected = answer.headers.get("Content-Length")
        with open(fd, "wb") as file:
            while chunk := answer.read(CHUNK):
                total += len(chunk)
                if left is not None and total > left:
                    raise OSError("more than max_transfer_input_mb allows")
                file.write(chunk)
    if expected is not None and whole_number(expected) not in (None, total):
        raise MayPass(f"{total} of {expected} bytes came")
    return total


def _request(url: str) -> urllib.request.Request:
    """A request, with the URL's user and password as basic authorization that goes to this server alone."""
    parts = urllib.parse.urlsplit(url)
    who, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urllib.parse.urlunsplit((parts.scheme, host, parts.path, parts.query, "")))
    if who:
        token = base64.b64encode(urllib.parse.unquote(who).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _by_program(program: str, url: str, name: str) -> int:
    """HTCondor's protocol: a file of ads says what to fetch, another what came of it."""
    asked, said = f".{name}.fetch", f".{name}.fetched"
    try:
        Path(asked).write_text(f"[ Url = {json.dumps(url)}; LocalFileName = {json.dumps(os.path.abspath(name))} ]\n")
        done = subprocess.run(
            [program, "-infile", asked, "-outfile", said], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode or not os.path.exists(name):
            text = Path(said).read_text(errors="replace")[:MOST_SAID] if os.path.exists(said) else ""
            kind = MayPass if _attribute_of(text, "transferretryable").lower() == "true" else OSError
            raise kind(_attribute_of(text, "transfererror") or f"{program} ended with status {done.returncode}")
    finally:
        for path in (asked, said):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return os.stat(name).st_size


def _attribute_of(text: str, attribute: str) -> str:
    """A transfer program's value of an attribute (lower case); empty where it gives none."""
    for line in text.replace(";", "\n").splitlines():
        name, _, value = line.partition("=")
        if name.strip(" [").lower() == attribute:
            return value.strip(" ]").strip('"')
    return ""


if __name__ == "__main__":
    main()
