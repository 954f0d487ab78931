"""Reads users' event logs: `condor_wait` and the look-alike `JobEventLog`.

An event is `NNN (cluster.proc.subproc) date what happened`, further lines, and a line of three dots. A part of an event
that is still being written is left for the next look. Pure, but for `LogReader`, which reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pool.outside import OutsideWorld

_HEAD = re.compile(
    r"(?P<kind>[0-9]{3}) \((?P<cluster>-?[0-9]+)\.(?P<proc>-?[0-9]+)\.(?P<sub>-?[0-9]+)\) "
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:]{8}(?:\.[0-9]+)?|[0-9]{2}/[0-9]{2} [0-9:]{8})Z? ?(?P<text>.*)"
)
#: Kinds of events after which a job is no longer in the queue.
ENDS = frozenset({5, 9})
SUBMITTED = 0


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event.

    Attributes:
        kind: its number: 0 submitted, 1 running, 5 ended, 9 removed, 12 held ...
        time: seconds since 1970, as the zone of this process has the log's date.
        text: what stands behind the date.
        lines: the further lines, as they are.
        whole: all of it as it stands in the log.
    """

    kind: int
    cluster: int
    proc: int
    subproc: int
    time: float
    text: str
    lines: tuple[str, ...]
    whole: str


def read_event(text: str, year: int) -> LoggedEvent | None:
    """The event of a text without its line of dots; None if it is none.

    Args:
        year: for a date without one.
    """
    lines = text.strip("\n").split("\n")
    found = _HEAD.match(lines[0])
    if found is None:
        return None
    date = found["date"].replace("T", " ")
    if "/" in date:
        date = f"{year}-{date[:2]}-{date[3:5]}{date[5:]}"
    when = datetime.strptime(date.partition(".")[0], "%Y-%m-%d %H:%M:%S")
    return LoggedEvent(
        int(found["kind"]),
        int(found["cluster"]),
        int(found["proc"]),
        int(found["sub"]),
        when.timestamp(),
        found["text"],
        tuple(lines[1:]),
        text,
    )


class LogReader:
    """A log that is being written, read from where the last look ended.

    Args:
        path: of the log.
        offset: the byte at which it begins.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    @property
    def is_there(self) -> bool:
        """Whether there is such a file."""
        return self.path.exists()

    def events(self) -> Iterator[LoggedEvent]:
        """The whole events that have come since the last look.

        Raises:
            OSError: the log cannot be read.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            rest = file.read()
        end = rest.rfind(b"...\n")
        if end < 0 or (end > 0 and rest[end - 1 : end] != b"\n"):
            return
        year = datetime.fromtimestamp(OutsideWorld().wall()).year
        for part in rest[: end + 4].split(b"\n...\n")[:-1] if rest[: end + 4].endswith(b"\n...\n") else ():
            self.offset += len(part) + 5
            found = read_event(part.decode("utf-8", "surrogateescape") + "\n", year)
            if found is not None:
                yield found
