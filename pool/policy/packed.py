"""Ads as bytes: how the schedd keeps them in memory and on disk.

msgpack of an ad's wire form. Text may hold file names that are not UTF-8 (as Python's surrogate escapes). A packed ad
is unpacked when it is needed; the last ones needed are kept unpacked, so they must not be changed.

An ad that waits in memory lies there in two parts: what says which job it is, and the rest, which the jobs that one
user submits one after the other mostly have in common. Of equal rests one is kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgpack

from pool.classad import ClassAd

Parts = tuple[bytes, bytes]

#: Attributes that say which job it is.
OF_ITS_OWN = frozenset(
    {
        *("QDate", "EnteredCurrentStatus", "JobPrio", "Cmd", "Arguments", "Args", "Environment", "Env"),
        *("Iwd", "In", "Out", "Err", "UserLog", "TransferInput", "TransferOutput", "TransferOutputRemaps"),
    }
)
_RECENT = 256
_LARGE = 64 * 1024
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


@lru_cache(16)
def _unpacked(packed: bytes) -> dict[str, Any]:
    found: dict[str, Any] = unpack(packed)
    return found


def parted(wire: dict[str, Any]) -> Parts:
    """The two parts of an ad, packed."""
    rest = {name: value for name, value in wire.items() if name not in OF_ITS_OWN}
    own = {name: value for name, value in wire.items() if name in OF_ITS_OWN}
    return _one_of_equal(pack(rest)), pack(own)


@lru_cache(_RECENT)
def _one_of_equal(packed: bytes) -> bytes:
    return packed


@lru_cache(_RECENT)
def wire_of(parts: Parts) -> dict[str, Any]:
    """An ad of two parts in wire form; not to be changed."""
    rest, own = parts
    return {**unpack(rest), **unpack(own)}


@lru_cache(_RECENT)
def ad_of(parts: Parts) -> ClassAd:
    """An ad of two parts, to be looked at or to be the parent of another; not to be changed."""
    return ClassAd.from_wire(wire_of(parts))


class RepeatPacker:
    """Packs maps of which many that follow each other are equal: an equal one is not packed again."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None
        self._kinds: list[Any] = []
        self._packed = b""

    def pack(self, value: dict[str, Any]) -> bytes:
        """The bytes of a map."""
        if value != self._before or _kinds(value) != self._kinds:
            self._kinds = _kinds(value)
            # Equal values may be packed differently where there are several forms: 1, 1.0 and true are equal.
            self._before = None if not _HOLDERS.isdisjoint(self._kinds) else value
            self._packed = pack(value)
        return self._packed


_HOLDERS = frozenset((dict, list, tuple))


def _kinds(value: dict[str, Any]) -> list[Any]:
    """The names of a map, and the types of its values."""
    return [*value, *map(type, value.values())]
