"""Frames: a length of four bytes, most significant first, then that many bytes of msgpack.

A frame's length is checked before its bytes are waited for, so what exceeds the bound costs four bytes to
refuse. Text may carry file names that are not UTF-8 (as Python's surrogate escapes). Extension types, but for
msgpack's own timestamp, are not part of the protocol. This module knows nothing of what a frame says.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

import msgpack

from pool.wire.errors import LocalFault, RemoteFault

HEADER = Struct(">I")
BYTES = Struct(">BI")  # msgpack's bin 32
LARGE = 64 * 1024  # bytes; from here on a copy costs more than a second buffer
_unpack = msgpack.unpackb


class Encoder:
    """Makes frames. Keeps a small buffer of its own, so it is to be kept and used again."""

    __slots__ = ("_pack",)

    def __init__(self) -> None:
        self._pack = _packer()

    def encode(self, value: object, limit: int) -> tuple[bytes, bytes]:
        """The header and the body of one frame.

        Raises:
            LocalFault: the value cannot be packed, or is longer than `limit` bytes.
        """
        try:
            body: bytes = self._pack(value)
        except (TypeError, ValueError, OverflowError, RecursionError, BufferError) as error:
            raise LocalFault(f"cannot send this value: {_reason_of(error)}", hint="a defect of the caller") from error
        size = len(body)
        if size > LARGE:
            self._pack = _packer()
        if size > limit:
            raise _too_long(size, limit)
        return HEADER.pack(size), body

    def encode_bytes(
        self, before: list[int], data: bytes, limit: int, within: list[Any] | None = None
    ) -> tuple[bytes, bytes]:
        """The frame of [*before, data], or of [*before, [*within, data]], in two pieces: the second is `data` itself,
        which may be large. The lists have up to 14 elements.

        Raises:
            LocalFault: a value cannot be packed, or it is longer than `limit` bytes.
        """
        try:
            packed: list[bytes] = [self._pack(one) for one in (before, within) if one is not None]
        except (TypeError, ValueError, OverflowError, RecursionError, BufferError) as error:
            raise LocalFault(f"cannot send this value: {_reason_of(error)}", hint="a defect of the caller") from error
        opened = [bytes((one[0] + 1,)) + one[1:] for one in packed]  # of lists with one element more
        start = b"".join(opened) + BYTES.pack(0xC6, len(data))
        size = len(start) + len(data)
        if size > limit:
            raise _too_long(size, limit)
        return HEADER.pack(size) + start, data


class Decoder:
    """Cuts what arrives into frames.

    Attributes:
        limit: bytes in a frame at most; may be changed between frames.
    """

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def decode(self, data: bytes | bytearray | memoryview) -> Iterator[tuple[Any, int]]:
        """Every whole frame with its length in bytes, header included. To be run to its end.

        Raises:
            RemoteFault: a frame is too long or is not msgpack.
        """
        buffer = self._buffer
        whole: bytes | bytearray | memoryview = data
        if buffer:
            buffer += data
            whole = buffer
        position, end = 0, len(whole)
        if end >= 4:
            with memoryview(whole) as view:
                while end - position >= 4:
                    (size,) = HEADER.unpack_from(view, position)
                    if size > self.limit:
                        raise RemoteFault(f"a frame of {size} bytes, where {self.limit} are allowed")
                    start = position + 4
                    if end - start < size:
                        break
                    position = start + size
                    yield decode(view[start:position]), size + 4
        if whole is buffer:
            del buffer[:position]
        elif position < end:
            buffer += memoryview(data)[position:]

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not come whole."""
        return len(self._buffer)


def decode(body: bytes | memoryview) -> Any:
    """The value of one body.

    Raises:
        RemoteFault: it is not one msgpack value.
    """
    try:
        return _unpack(body, strict_map_key=False, unicode_errors="surrogateescape", ext_hook=_no_extensions)
    except RemoteFault:
        raise
    except Exception as error:  # msgpack raises many kinds: all mean that these bytes are no frame
        raise RemoteFault(f"a frame is not msgpack: {_reason_of(error)}") from None


def _packer() -> Any:
    return msgpack.Packer(unicode_errors="surrogateescape", buf_size=1024).pack


def _too_long(size: int, limit: int) -> LocalFault:
    return LocalFault(
        f"cannot send {size} bytes at once: the other side takes at most {limit}", hint="ask for less at a time"
    )


def _no_extensions(code: int, data: bytes) -> Any:
    raise RemoteFault(f"a frame holds an extension type ({code})")


def _reason_of(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
