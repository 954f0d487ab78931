"""The floors of the package: which room may import from which.

This is the one table. `tests/test_style.py` checks it against every import and against the tree, and
`docs/architecture.md` shows it as `python -m tests.floors` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
    Floor(
        ("decimals", "errors", "outside"),
        "numbers from outside; the error people read; the one door to time, chance and secrets",
    ),
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
        ("checkpoint", "config", "images", "machine", "mpi", "network", "remoteio", "store"),
        "the keeper (C), settings, checkpoints on disk, the sensors, the ranker of MPI jobs (C), the packets of jobs' "
        "private networks (relay and way out, in C), the files of a job's owner from anywhere, the queue on disk",
    ),
    Floor(("pipes",), "a job's pipes to other machines"),
    Floor(("shadow", "starter"), "looking after one job, on the submit side and on its machine"),
    Floor(
        ("roles",),
        "collector, negotiator, schedd, startd, world: methods and timers, thin shells around `pool/policy`",
    ),
    Floor(("log", "mail", "enrolment"), "what a node writes down, mails, and keeps of its pool's trust"),
    Floor(
        ("revocation", "invitations", "queries"),
        "joining and leaving a pool; agreements with other pools; the users' questions to other nodes",
    ),
    Floor(("node",), "one process: listening, starting and restarting roles"),
    Floor(("client",), "what programs touch"),
    Floor(("compat",), "HTCondor's commands and Python modules, as translations onto the client"),
    Floor(("cli",), "what people touch"),
    Floor(("__main__",), "`python -m pool`"),
    Floor(
        ("testing",),
        "a virtual clock, a network with faults, machines and jobs that do not exist; no room imports it",
    ),
)

#: Packages whose rooms have floors of their own, by their folder.
INNER_FLOORS = {
    "pool/roles/schedd": (
        Floor(("core",), "the ledger, the claims, submits, the end of a run"),
        Floor(("checkpoints",), "checkpoints on the submit side, and the server that keeps them"),
        Floor(
            ("dedicated", "files", "parallel"),
            "the dedicated scheduler; other files of jobs on the submit side; jobs on several machines",
        ),
        Floor(
            ("notices", "placement", "submit", "views"),
            "users' logs and mail; from an idle job to a running one and back; actions of people, and jobs on the "
            "submit machine; listings and explanations",
        ),
        Floor(("workflows",), "graphs of jobs, whose nodes are queued as their parents end"),
        Floor(("role",), "joins the rooms, whose methods it serves under its name"),
    ),
    "pool/roles/startd": (
        Floor(("slots",), "the slots and claims of one machine: their records, states and ads"),
        Floor(("images",), "checkpoint images that pass through the machine, to its peers and from them"),
        Floor(("owner", "checkpoints"), "the owner's policy, facts and draining; the checkpoints of one running job"),
        Floor(("running",), "one running job, from its start order to its acknowledged end"),
        Floor(("claims",), "matches, claims, leases, preemption, urgent claims, and how each claim ends"),
        Floor(("recovery",), "jobs that outlived an earlier run of the node"),
        Floor(("role",), "the role: makes its parts, and its methods call them; no other file knows it"),
    ),
}


def floors_of(floors: tuple[Floor, ...]) -> dict[str, int]:
    """The floor of each room, counted from below."""
    return {room: number for number, floor in enumerate(floors) for room in floor.rooms}


FLOOR_OF = floors_of(FLOORS)


def rooms_in(folder: Path) -> dict[str, bool]:
    """The rooms of a folder, and whether each is a folder itself."""
    rooms = {path.name: True for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    return rooms | {path.stem: False for path in folder.glob("*.py") if path.stem != "__init__"}


def table(folder: str, floors: tuple[Floor, ...], is_package: dict[str, bool]) -> str:
    """One table of `docs/architecture.md`, the highest floor first.

    Args:
        folder: of the rooms.
        is_package: each room, and whether it is a folder.
    """
    rows = ["| floor | rooms | what lives there |", "|---|---|---|"]
    for number, floor in reversed(list(enumerate(floors))):
        rooms = ", ".join(f"`{folder}/{room}`" if is_package[room] else f"`{folder}/{room}.py`" for room in floor.rooms)
        rows.append(f"| {number} | {rooms} | {floor.holds} |")
    return "\n".join(rows) + "\n"


def tables(repository: Path) -> list[str]:
    """All tables of `docs/architecture.md`."""
    all_floors = {"pool": FLOORS, **INNER_FLOORS}
    return [table(folder, floors, rooms_in(repository / folder)) for folder, floors in all_floors.items()]


if __name__ == "__main__":
    from tests.conftest import REPOSITORY

    print("\n".join(tables(REPOSITORY)), end="")
