"""Ads as bytes: how the schedd keeps them in memory and on disk.

msgpack of an ad's wire form. Text may hold file names that are not UTF-8 (as Python's surrogate escapes). A packed ad
is unpacked when it is needed; the last ones needed are kept unpacked, so they must not be changed.

An ad that waits in memory lies there in two parts: what says which job it is, and the rest, which the jobs that one
user submits one after the other mostly have in common. Of equal rests one is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import msgpack

from pool.classad import ClassAd

Parts = tuple[bytes, bytes]
K = TypeVar("K")
V = TypeVar("V")

#: Attributes that say which job it is.
OF_ITS_OWN = frozenset(
    {
        *("QDate", "EnteredCurrentStatus", "JobPrio", "Cmd", "Arguments", "Args", "Environment", "Env"),
        *("Iwd", "In", "Out", "Err", "UserLog", "TransferInput", "TransferOutput", "TransferOutputRemaps"),
    }
)
#: How many of the last ads are kept, and how many parts that ads have in common are kept unpacked.
_RECENT, _RESTS = 256, 64
_LARGE = 64 * 1024
#: The same for those of more bytes than _LARGE: an ad may be as large as a message.
_RECENT_LARGE = 4
_packer = msgpack.Packer(unicode_errors="surrogateescape")


def pack(value: Any) -> bytes:
    """The bytes of an ad, or of any value that can travel.

    Raises:
        TypeError, ValueError, OverflowError: the value cannot travel.
    """
    global _packer
    packed: bytes = _packer.pack(value)
    if len(packed) > _LARGE:  # it keeps a buffer as large as the largest
        _packer = msgpack.Packer(unicode_errors="surrogateescape")
    return packed


def unpack(packed: bytes) -> Any:
    """The value of such bytes, the caller's own."""
    return msgpack.unpackb(packed, strict_map_key=False, unicode_errors="surrogateescape")


def unpack_over(own: bytes, shared: bytes) -> dict[str, Any]:
    """An ad whose own part lies over a part that it shares with others, which may be empty."""
    wire: dict[str, Any] = unpack(own)
    return {**_unpacked(shared), **wire} if shared else wire


def keep_recent(recent: int, size: Callable[[K], int]) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Keep the last results of a function, of large arguments a few, so that they take a bounded number of bytes.

    Args:
        recent: how many.
        size: of an argument, in bytes.
    """

    def declare(make: Callable[[K], V]) -> Callable[[K], V]:
        usual, large = lru_cache(recent)(make), lru_cache(_RECENT_LARGE)(make)
        return wraps(make)(lambda given: usual(given) if size(given) <= _LARGE else large(given))

    return declare


def _length(packed: bytes) -> int:
    return len(packed)


def _size(parts: Parts) -> int:
    return len(parts[0]) + len(parts[1])


@keep_recent(_RESTS, _length)
def _unpacked(packed: bytes) -> dict[str, Any]:
    found: dict[str, Any] = unpack(packed)
    return found


def parted(wire: dict[str, Any]) -> Parts:
    """The two parts of an ad, packed."""
    rest = {name: value for name, value in wire.items() if name not in OF_ITS_OWN}
    own = {name: value for name, value in wire.items() if name in OF_ITS_OWN}
    return _one_of_equal(pack(rest)), pack(own)


@keep_recent(_RECENT, _length)
def _one_of_equal(packed: bytes) -> bytes:
    return packed


@keep_recent(_RECENT, _size)
def wire_of(parts: Parts) -> dict[str, Any]:
    """An ad of two parts in wire form; not to be changed."""
    own, rest = layers_of(parts)
    return {**rest, **own}


def layers_of(parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
    """An ad of two parts as two maps in wire form, of which no name is in both; the second is not to be changed.

    Cheaper than `wire_of` where a few attributes of many ads are wanted.
    """
    rest, own = parts
    return unpack(own), _unpacked(rest)


@keep_recent(_RECENT, _size)
def ad_of(parts: Parts) -> ClassAd:
    """An ad of two parts, to be looked at or to be the parent of another; not to be changed."""
    return ClassAd.from_wire(wire_of(parts))


class Repeats:
    """Tells of maps that follow each other whether one is as the one before, in the types of its values, too."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None
        self._kinds: list[Any] = []

    def is_again(self, value: dict[str, Any]) -> bool:
        """Whether this one is as the one before."""
        before = self._before
        if value is before:
            return True
        kinds = _kinds(value)
        if value == before and kinds == self._kinds:
            return True
        self._kinds = kinds
        # Equal values may be packed differently where there are several forms: 1, 1.0 and true are equal.
        self._before = None if not _HOLDERS.isdisjoint(kinds) else value
        return False


class RepeatPacker:
    """Packs maps of which many that follow each other are equal: an equal one is not packed again."""

    def __init__(self) -> None:
        self._repeats = Repeats()
        self._packed = b""

    def pack(self, value: dict[str, Any]) -> bytes:
        """The bytes of a map."""
        if not self._repeats.is_again(value):
            self._packed = pack(value)
        return self._packed


_HOLDERS = frozenset((dict, list, tuple))


def _kinds(value: dict[str, Any]) -> list[Any]:
    """The names of a map, and the types of its values."""
    return [*value, *map(type, value.values())]
