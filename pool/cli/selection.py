"""Which jobs a command means: ids, clusters, users, all of them.

Pure: words from the command line become the parameters of a query or an action.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pool.errors import PoolError

_ID = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18})?)?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@+-]*\$?")


class UsageProblem(PoolError):
    """The command line itself is wrong; the exit status is 2."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Ids are `(cluster,)` or `(cluster, proc)`; owners are user names."""

    ids: tuple[tuple[int, ...], ...] = ()
    owners: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ids or self.owners)

    def parameters(self, constraint: str | None = None) -> dict[str, Any]:
        """Parameters for `schedd.query` and its like. Named jobs and owners are joined; a constraint narrows them."""
        if len(self.owners) + bool(self.ids) > 1 or (self.ids and constraint):
            chosen = self.as_constraint()
            return {"constraint": f"({chosen}) && ({constraint})" if constraint else chosen}
        parameters: dict[str, Any] = {}
        if self.ids:
            parameters["ids"] = [list(job) for job in self.ids]
        if self.owners:
            parameters["owner"] = self.owners[0]
        if constraint:
            parameters["constraint"] = constraint
        return parameters

    def as_constraint(self) -> str:
        # A name with a domain is that of the account, as slots and priorities have it.
        parts = [f'{"User" if "@" in owner else "Owner"} == "{owner}"' for owner in self.owners]
        for job in self.ids:
            parts.append(f"ClusterId == {job[0]}" + (f" && ProcId == {job[1]}" if len(job) > 1 else ""))
        return " || ".join(f"({part})" if " && " in part else part for part in parts)


def select(words: Sequence[str]) -> Selection:
    """Reads `12`, `12.3` and user names.

    Raises:
        UsageProblem: a word is none of these.
    """
    ids: list[tuple[int, ...]] = []
    owners: list[str] = []
    for word in words:
        if match := _ID.fullmatch(word):
            ids.append((int(match[1]),) if match[2] is None else (int(match[1]), int(match[2])))
        elif _USER.fullmatch(word):
            owners.append(word)
        else:
            raise UsageProblem(f"'{word}' is not a job", hint="give a cluster (12), a job (12.3) or a user's name")
    return Selection(tuple(ids), tuple(owners))


def one_job(word: str) -> tuple[int, ...]:
    """Reads the id of one job or cluster.

    Raises:
        UsageProblem: it is a user's name or nonsense.
    """
    chosen = select([word])
    if not chosen.ids:
        raise UsageProblem(f"'{word}' is not the id of a job", hint="an id looks like 12.3")
    return chosen.ids[0]


def seconds(word: str) -> float:
    """Reads a time: `90`, `30s`, `15m`, `2h`, `7d`.

    Raises:
        UsageProblem: it is not a time.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)", word.strip().lower())
    if not match:
        raise UsageProblem(f"'{word}' is not a time", hint="write 90, 30s, 15m, 2h or 7d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match[2]]
