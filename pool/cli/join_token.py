"""Where a node's join token comes from, and how it is kept out of sight of this machine's other users.

A token in the arguments of a process can be read by everybody here (/proc/PID/cmdline) for as long as the process
lives. So it comes by file, by standard input or in the environment; one that is given as an argument all the same is
overwritten there at once.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import MutableMapping
from pathlib import Path

from pool.cli.selection import UsageProblem

#: The variable that holds a token, or the name of a file with one.
VARIABLE = "POOLNODE_JOIN"
#: How tokens begin; a user's lets no machine in, which the node that made it says.
PREFIXES = ("pooljoin-", "pooluser-")
LONGEST = 64 * 1024


def read_join(given: str | None, environ: MutableMapping[str, str], option: str = "--join") -> str | None:
    """The token that a node joins with; None where none was given.

    Args:
        given: what `--join` says: a file, `-` for standard input, or the token itself.
        option: where it was given, for people.
        environ: taken where nothing was given; the token leaves it, so that no child process inherits it.

    Raises:
        UsageProblem: there is no token there.
    """
    text = given if given is not None else environ.pop(VARIABLE, None)
    if not text:
        return None
    if text.startswith(PREFIXES):
        if given is not None:
            hide_argument(text)
        return text
    try:
        found = sys.stdin.read(LONGEST) if text == "-" else Path(text).read_text()[:LONGEST]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageProblem(
            f"{option} {text[:200]}: cannot read a token there: {why.lower()}",
            hint="give a file with the token, or - and the token on standard input",
        ) from error
    return found.strip()


def hide_argument(text: str) -> None:
    """Overwrite a text in the arguments that this process shows to others. They stay where they are."""
    try:
        shown = Path("/proc/self/cmdline").read_bytes()
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45])
    except (OSError, IndexError, ValueError):
        return
    secret, place = text.encode(), 0
    while start and (place := shown.find(secret, place)) >= 0:
        ctypes.memset(start + place, ord("x"), len(secret))
        place += len(secret)
