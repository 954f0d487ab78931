"""What of a job's pipes to other machines belongs to a part's checkpoint: positions, and bytes in no process's pipe.

The reader's side says how many bytes had been written to the job's pipe when the job stood still: R. The writer's side
says how many had been taken out of the job's pipe before anybody stood still, W, and has the bytes R..W among those it
keeps. What lies in the pipes is in the keeper's image. Of a writer that had ended the reader's side has the rest, since
the writer's part may be gone by the time of a restart. Nothing else is kept: the stream goes on from R.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from pool.images import ImageDamaged

#: Names in an image: what there is, and the bytes of each stream by its number.
FLOWS, BYTES = "flows", "flow."
#: Bytes that are sent in one go.
PIECE = 1 << 20


@dataclass(slots=True)
class Outflow:
    """The writer's side.

    Attributes:
        read: bytes taken out of the job's pipe (W).
        kept: the last of these, as far back as the reader's side may lack them.
        over: all has come to the other side, or nobody there reads it any more.
    """

    read: int = 0
    kept: list[bytes] = field(default_factory=list)
    over: bool = False


@dataclass(slots=True)
class Inflow:
    """The reader's side.

    Attributes:
        used: bytes written to the job's pipe (R).
        ended: no more come than `waiting`, which are to be written yet.
    """

    used: int = 0
    ended: bool = False
    waiting: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Flows:
    """All streams of one part, by their numbers."""

    out: Mapping[int, Outflow] = field(default_factory=dict)
    into: Mapping[int, Inflow] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Lay them beside a keeper's image. Blocks on the disk."""
        out = {number: [one.read, one.over] for number, one in self.out.items()}
        into = {number: [one.used, one.ended] for number, one in self.into.items()}
        (directory / FLOWS).write_bytes(msgpack.packb({"out": out, "into": into}))
        for number, outflow in self.out.items():
            _write(directory / f"{BYTES}{number}", outflow.kept)
        for number, inflow in self.into.items():
            _write(directory / f"{BYTES}{number}", inflow.waiting)

    @classmethod
    def load(cls, directory: Path) -> Flows:
        """What an image has of them. Blocks on the disk.

        Raises:
            ImageDamaged: it makes no sense.
        """
        try:
            said = msgpack.unpackb((directory / FLOWS).read_bytes(), strict_map_key=False)
            out = {
                int(number): Outflow(int(read), _read(directory, number), bool(over))
                for number, (read, over) in said["out"].items()
            }
            into = {
                int(number): Inflow(int(used), bool(ended), _read(directory, number))
                for number, (used, ended) in said["into"].items()
            }
        except (OSError, KeyError, ValueError, TypeError, msgpack.UnpackException) as error:
            raise ImageDamaged(f"the pipes to other machines of this checkpoint make no sense: {error}") from error
        return cls(out, into)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("wb") as handle:
        handle.writelines(pieces)


def _read(directory: Path, number: int) -> list[bytes]:
    with (directory / f"{BYTES}{int(number)}").open("rb") as handle:
        return list(iter(lambda: handle.read(PIECE), b""))
