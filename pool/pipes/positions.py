"""The positions of a part's remote pipes in a checkpoint, and the bytes that no process's pipe holds.

The receiver stores R, the bytes written to the reader's pipe before the freeze. The sender stores W, the bytes read
from the writer's pipe before any part was frozen, and keeps the bytes R..W. The bytes inside the pipes are in the
keeper's image. If the writer has exited, the receiver's node stores the remaining bytes, because the writer's part may
not exist at the restart. Nothing else is needed: the stream continues from R.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from pool.images import ImageDamaged

#: File names in an image: the positions, and the bytes of each stream by its number.
FLOWS, BYTES = "flows", "flow."
#: Bytes of one message.
PIECE = 1 << 20


@dataclass(slots=True)
class SenderPosition:
    """The writer's side.

    Attributes:
        read: bytes read from the writer's pipe (W).
        kept: the last of these, as many as the receiver may lack.
        over: the other side has all bytes, or has no reader any more.
    """

    read: int = 0
    kept: list[bytes] = field(default_factory=list)
    over: bool = False


@dataclass(slots=True)
class ReceiverPosition:
    """The reader's side.

    Attributes:
        used: bytes written to the reader's pipe (R).
        ended: the writer has ended; only `waiting` is still to be written.
    """

    used: int = 0
    ended: bool = False
    waiting: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PipePositions:
    """The positions of all streams of one part, by their numbers."""

    out: Mapping[int, SenderPosition] = field(default_factory=dict)
    into: Mapping[int, ReceiverPosition] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Write them beside a keeper's image. Blocks on the disk."""
        out = {number: [one.read, one.over] for number, one in self.out.items()}
        into = {number: [one.used, one.ended] for number, one in self.into.items()}
        (directory / FLOWS).write_bytes(msgpack.packb({"out": out, "into": into}))
        for number, outflow in self.out.items():
            _write(directory / f"{BYTES}{number}", outflow.kept)
        for number, inflow in self.into.items():
            _write(directory / f"{BYTES}{number}", inflow.waiting)

    @classmethod
    def load(cls, directory: Path) -> PipePositions:
        """Read them from an image. Blocks on the disk.

        Raises:
            ImageDamaged: the files are damaged.
        """
        try:
            said = msgpack.unpackb((directory / FLOWS).read_bytes(), strict_map_key=False)
            out = {
                int(number): SenderPosition(int(read), _read(directory, number), bool(over))
                for number, (read, over) in said["out"].items()
            }
            into = {
                int(number): ReceiverPosition(int(used), bool(ended), _read(directory, number))
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
