"""Ads as bytes: how the schedd keeps them in memory and on disk.

msgpack of an ad's wire form. Text may hold file names that are not UTF-8 (as Python's surrogate escapes). What was
packed is unpacked when it is needed; what was needed lately is kept unpacked, so it must not be changed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgpack

from pool.classad import ClassAd

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


@lru_cache(_RECENT)
def wire_of(packed: bytes) -> dict[str, Any]:
    """A packed ad in wire form; not to be changed."""
    wire: dict[str, Any] = unpack(packed)
    return wire


@lru_cache(_RECENT)
def ad_of(packed: bytes) -> ClassAd:
    """A packed ad, to be looked at or to be the parent of another; not to be changed."""
    return ClassAd.from_wire(wire_of(packed))
