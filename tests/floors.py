"""The floors of the package: which room may import from which.

This is the one table. `tests/test_style.py` checks it against every import and against the tree, and
`docs/architecture.md` shows it as `python -m tests.floors` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """Rooms that do not import from each other.

    Attributes:
        rooms: names of packages and modules of `pool/`.
        holds: what lives there.
    """

    rooms: tuple[str, ...]
    holds: str


#: Lowest first: a room may import from rooms of lower floors only.
FLOORS = (
    Floor(("errors", "outside"), "the error people read; the one door to time, chance and secrets"),
    Floor(("sparse",), "holes of files"),
    Floor(
        ("identity", "metering", "safe_directory"),
        "becoming a user for good; the processor time of one piece of work; file work in a directory that another user "
        "may change",
    ),
    Floor(("classad", "wire"), "the language and the protocol; neither knows what a job is"),
    Floor(("jobs",), "descriptions of jobs: plain data"),
    Floor(("policy",), "decisions: pure functions"),
    Floor(
        ("checkpoint", "config", "images", "machine", "remoteio", "store"),
        "the keeper (C), settings, checkpoints on disk, the sensors, the files of a job's owner from anywhere, the "
        "queue on disk",
    ),
    Floor(("pipes",), "a job's pipes to other machines"),
    Floor(("shadow", "starter"), "looking after one job, on the submit side and on its machine"),
    Floor(("roles",), "collector, negotiator, schedd, startd: methods and timers, thin shells around `pool/policy`"),
    Floor(("log", "mail", "enrolment"), "what a node writes down, mails, and keeps of its pool's trust"),
    Floor(("revocation", "queries"), "joining and leaving a pool; the users' questions to other nodes"),
    Floor(("node",), "one process: listening, starting and restarting roles"),
    Floor(("client",), "what programs touch"),
    Floor(("cli",), "what people touch"),
    Floor(("__main__",), "`python -m pool`"),
    Floor(
        ("testing",),
        "a virtual clock, a network with faults, machines and jobs that do not exist; no room imports it",
    ),
)

#: The floor of each room, counted from below.
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor.rooms}


def table(is_package: dict[str, bool]) -> str:
    """The table of `docs/architecture.md`, the highest floor first.

    Args:
        is_package: each room, and whether it is a folder.
    """
    rows = ["| floor | rooms | what lives there |", "|---|---|---|"]
    for number, floor in reversed(list(enumerate(FLOORS))):
        rooms = ", ".join(f"`pool/{room}`" if is_package[room] else f"`pool/{room}.py`" for room in floor.rooms)
        rows.append(f"| {number} | {rooms} | {floor.holds} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    from tests.conftest import REPOSITORY

    print(table({room: (REPOSITORY / "pool" / room).is_dir() for room in FLOOR_OF}), end="")
