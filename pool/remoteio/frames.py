"""The frames between a job's file system on the execute machine and its submit side, as bytes (TS 5, EV 2.2).

    u32 size of the whole frame, u16 operation, u16 errno (0 in a request), u64 unique, then the body

Little-endian. An answer echoes the request's operation and `unique`; answers come in any order. Nodes that carry frames
between the two need not look into them. Packs and unpacks only; `file_operations` defines the operations. The execute
side is written in C (pool/checkpoint/remote/): change both together.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

#: Raised with every change of a frame's body: both ends of a job's files have the same one, or refuse each other.
#: 2: an attr counts changes, and LOCK is answered with one.
VERSION = 2
#: Bytes of the largest frame.
LARGEST = 2 * 1024 * 1024
#: The offset of a WRITE that means the end of the file.
APPEND = 2**64 - 1
#: A time that is left as it is, and one that is now.
OMIT, NOW = -1, -2
#: Rights or an id that are left as they are.
UNCHANGED = 2**32 - 1

_HEADER = struct.Struct("<IHHQ")
HEADER = _HEADER.size
_U32 = struct.Struct("<I")
_ATTR = struct.Struct("<QQQQqqqIIIIQQ")
#: Bytes of an attr.
ATTR = _ATTR.size


class Op(IntEnum):
    """The operations."""

    HELLO = 1
    STAT = 2
    READLINK = 3
    LIST = 4
    OPEN = 5
    REOPEN = 6
    READ = 7
    WRITE = 8
    SYNC = 9
    CLOSE = 10
    TRUNCATE = 11
    MKDIR = 12
    RMDIR = 13
    UNLINK = 14
    RENAME = 15
    LINK = 16
    SYMLINK = 17
    CHMOD = 18
    CHOWN = 19
    UTIMES = 20
    STATFS = 21
    LOCK = 22
    ACCESS = 23
    XATTR = 24
    MARK = 25
    COMMIT = 26
    ROLLBACK = 27
    MKNOD = 28
    FALLOCATE = 29
    LEASE = 30
    SETXATTR = 32
    REMOVEXATTR = 33
    SEEK = 34
    SETATTR = 35
    UNLINK_NAMES = 36


class MalformedFrame(ValueError):
    """Bytes that are no frame of this version."""


def version_mismatch(other: object) -> str:
    """Why a side that speaks another version is refused."""
    return f"it speaks version {other!r:.20} of remote files, and this side version {VERSION}"


class Attr(NamedTuple):
    """The attributes of a file. Sizes in bytes, blocks of 512, times in nanoseconds; for `changes` see there."""

    dev: int
    ino: int
    size: int
    blocks: int
    atime: int
    mtime: int
    ctime: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    changes: int = 0


class RequestFrame(NamedTuple):
    """One frame, its body not looked into."""

    op: int
    error: int
    unique: int
    body: bytes


# Shapes of bodies, one letter for a field. 1, 4, 8: an unsigned number of so many bytes. q: a signed number of eight.
# s: a string of bytes. a: an Attr. f: one byte for each of the items. Fields in brackets are repeated as often as the
# u32 before them says.
REQUESTS: dict[Op, str] = {
    Op.HELLO: "4ss",
    Op.STAT: "s",
    Op.READLINK: "s",
    Op.LIST: "s8",
    Op.OPEN: "8s444",
    Op.REOPEN: "8s444881",
    Op.READ: "884",
    Op.WRITE: "88s",
    Op.SYNC: "81",
    Op.CLOSE: "8",
    Op.TRUNCATE: "s88",
    Op.MKDIR: "s4",
    Op.RMDIR: "s",
    Op.UNLINK: "s",
    Op.RENAME: "ss4",
    Op.LINK: "ss",
    Op.SYMLINK: "ss",
    Op.CHMOD: "s4",
    Op.CHOWN: "s44",
    Op.UTIMES: "sqq",
    Op.STATFS: "s",
    Op.LOCK: "881188",
    Op.ACCESS: "s4",
    Op.XATTR: "ss",
    Op.MARK: "8",
    Op.COMMIT: "8",
    Op.ROLLBACK: "8",
    Op.MKNOD: "s4",
    Op.FALLOCATE: "8488",
    Op.LEASE: "8s",
    Op.SETXATTR: "sss4",
    Op.REMOVEXATTR: "ss",
    Op.SEEK: "881",
    Op.SETATTR: "8444qq",
    Op.UNLINK_NAMES: "s(s)",
}
ANSWERS: dict[Op, str] = {
    Op.HELLO: "48(s)f44",
    Op.STAT: "a",
    Op.READLINK: "s",
    Op.LIST: "8(sa)",
    Op.OPEN: "as",
    Op.REOPEN: "a",
    Op.READ: "s",
    Op.WRITE: "4a",
    Op.SYNC: "",
    Op.CLOSE: "",
    Op.TRUNCATE: "a",
    Op.MKDIR: "a",
    Op.RMDIR: "",
    Op.UNLINK: "",
    Op.RENAME: "",
    Op.LINK: "a",
    Op.SYMLINK: "a",
    Op.CHMOD: "a",
    Op.CHOWN: "a",
    Op.UTIMES: "a",
    Op.STATFS: "8888844",
    Op.LOCK: "a",
    Op.ACCESS: "",
    Op.XATTR: "s",
    Op.MARK: "",
    Op.COMMIT: "",
    Op.ROLLBACK: "",
    Op.MKNOD: "a",
    Op.FALLOCATE: "a",
    Op.LEASE: "",
    Op.SETXATTR: "a",
    Op.REMOVEXATTR: "a",
    Op.SEEK: "8",
    Op.SETATTR: "a",
    Op.UNLINK_NAMES: "(44)",
}
#: The messages that the submit side sends unasked, as `notice` has it: the operation, and the shape of its body.
NOTICE, NOTICED = 31, "(8s)"
#: The answer to a LOCK that only looks: kind, start, length, process.
LOCKED = "1884"
_LETTERS = {"1": "B", "4": "I", "8": "Q", "q": "q"}
_NESTED = frozenset("a(f")
_NUMBERS = {"1": struct.Struct("<B"), "4": _U32, "8": struct.Struct("<Q"), "q": struct.Struct("<q")}
#: The answers that consist of numbers, and perhaps an Attr behind them, as whole frames.
_WHOLE_ANSWERS = {
    op: struct.Struct(
        _HEADER.format
        + "".join(_LETTERS[kind] for kind in shape.rstrip("a"))
        + (_ATTR.format[1:] if shape.endswith("a") else "")
    )
    for op, shape in ANSWERS.items()
    if not set(shape.removesuffix("a")) - set(_LETTERS)
}


def pack(op: int, unique: int, body: bytes = b"", error: int = 0) -> bytes:
    """A whole frame."""
    return _HEADER.pack(HEADER + len(body), op, error, unique) + body


def header(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[int, int, int, int]:
    """(size of the whole frame, op, errno, unique) of a frame that begins there.

    Raises:
        MalformedFrame: no frame is of that size.
    """
    found: tuple[int, int, int, int] = _HEADER.unpack_from(data, at)
    if not HEADER <= found[0] <= LARGEST:
        raise MalformedFrame(f"a frame of {found[0]} bytes")
    return found


def request(op: Op, unique: int, *values: Any) -> bytes:
    """A request as a whole frame."""
    return pack(op, unique, fields(REQUESTS[op], values))


def answer(op: Op, unique: int, *values: Any) -> bytes:
    """The answer to it."""
    whole = _WHOLE_ANSWERS.get(op)
    if op is Op.LOCK and len(values) > 1:
        return pack(op, unique, fields(LOCKED, values))
    if whole is None:
        return pack(op, unique, fields(ANSWERS[op], values))
    if values and isinstance(values[-1], Attr):
        return whole.pack(whole.size, op, 0, unique, *values[:-1], *values[-1])
    return whole.pack(whole.size, op, 0, unique, *values)


def reading(unique: int, size: int) -> bytes:
    """The answer to a READ, but for its data, which come behind it."""
    return _HEADER.pack(HEADER + 4 + size, Op.READ, 0, unique) + _U32.pack(size)


def refusal(op: int, unique: int, error: int) -> bytes:
    """The answer that it failed."""
    return pack(op, unique, error=error)


def notice(items: Sequence[tuple[int, bytes]]) -> bytes:
    """Names that have changed in leased directories, by the numbers of the leases; without a name the lease is over."""
    return pack(NOTICE, 0, fields(NOTICED, [items]))


def fields(shape: str, values: Sequence[Any]) -> bytes:
    """Values as the body of this shape."""
    out: list[bytes] = []
    _append_values(shape, values, out)
    return b"".join(out)


def _append_values(shape: str, values: Sequence[Any], out: list[bytes]) -> None:
    at = place = 0
    while at < len(shape):
        kind, value = shape[at], values[place]
        if kind == "s":
            out.append(_U32.pack(len(value)))
            out.append(value)
        elif kind == "a":
            out.append(_ATTR.pack(*value))
        elif kind == "(":
            end = shape.index(")", at)
            out.append(_U32.pack(len(value)))
            if shape[at + 1 : end] == "sa":
                for name, attr in value:
                    out += (_U32.pack(len(name)), name, _ATTR.pack(*attr))
            else:
                for item in value:
                    _append_values(shape[at + 1 : end], item, out)
            at = end
        elif kind == "f":
            out.append(bytes(value))
        else:
            out.append(_NUMBERS[kind].pack(value))
        at += 1
        place += 1


def values_of(shape: str, body: bytes) -> list[Any]:
    """The values in a body of this shape.

    Raises:
        MalformedFrame: it is not of this shape.
    """
    found: list[Any] = []
    try:
        runs = _runs(shape)
        end = _read_values(shape, body, 0, found) if runs is None else _read_runs(runs, body, found)
    except (struct.error, IndexError) as error:
        raise MalformedFrame("a body that is cut off") from error
    if end != len(body):
        raise MalformedFrame("a body that is too long")
    return found


@functools.cache
def _runs(shape: str) -> tuple[struct.Struct | None, ...] | None:
    """A shape of numbers and strings, the numbers between two strings at once; None is a string. None for others."""
    if _NESTED & set(shape):
        return None
    found: list[struct.Struct | None] = []
    for numbers in shape.split("s"):
        if numbers:
            found.append(struct.Struct("<" + "".join(_LETTERS[kind] for kind in numbers)))
        found.append(None)
    return tuple(found[:-1])


def _read_runs(runs: tuple[struct.Struct | None, ...], body: bytes, found: list[Any]) -> int:
    at = 0
    for run in runs:
        if run is not None:
            found += run.unpack_from(body, at)
            at += run.size
            continue
        (size,) = _U32.unpack_from(body, at)
        at += 4 + size
        if at > len(body):
            raise IndexError
        found.append(body[at - size : at])
    return at


def _read_strings(count: int, body: bytes, at: int, items: list[list[Any]]) -> int:
    for _ in range(count):
        (size,) = _U32.unpack_from(body, at)
        at += 4 + size
        if at > len(body):
            raise IndexError
        items.append([body[at - size : at]])
    return at


def _read_values(shape: str, body: bytes, at: int, found: list[Any]) -> int:
    place = 0
    while place < len(shape):
        kind = shape[place]
        if kind == "s":
            (size,) = _U32.unpack_from(body, at)
            at += 4
            if at + size > len(body):
                raise IndexError
            found.append(body[at : at + size])
            at += size
        elif kind == "a":
            found.append(Attr._make(_ATTR.unpack_from(body, at)))
            at += ATTR
        elif kind == "(":
            last = shape.index(")", place)
            (count,) = _U32.unpack_from(body, at)
            at += 4
            items: list[list[Any]] = []
            if shape[place + 1 : last] == "s":
                at = _read_strings(count, body, at, items)
                count = 0
            for _ in range(count):
                item: list[Any] = []
                at = _read_values(shape[place + 1 : last], body, at, item)
                items.append(item)
            found.append(items)
            place = last
        elif kind == "f":
            count = len(found[-1])
            if at + count > len(body):
                raise IndexError
            found.append(list(body[at : at + count]))
            at += count
        else:
            number = _NUMBERS[kind]
            found.append(number.unpack_from(body, at)[0])
            at += number.size
        place += 1
    return at
