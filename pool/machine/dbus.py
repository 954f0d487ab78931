"""The little of D-Bus that asking another program a question takes: messages in bytes, and nothing else.

No I/O, no connections: `pool.machine.logind` has those. Little endian is written; both are read. A malformed message
raises `MalformedMessage`, also where it is cut off or nests too deep.

    y b n q i u x t d s o g v a(...) {..}        all types but file descriptors
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_SERIAL, DESTINATION, SENDER, SIGNATURE = range(1, 9)
#: The fixed part of every message, and the longest message taken.
FIXED = 16
LONGEST = 1 << 20
DEEPEST = 32
_FIELD_TYPES = {
    PATH: "o",
    INTERFACE: "s",
    MEMBER: "s",
    ERROR_NAME: "s",
    REPLY_SERIAL: "u",
    DESTINATION: "s",
    SENDER: "s",
    SIGNATURE: "g",
}
_PLAIN = {"y": "B", "b": "I", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d"}
_ALIGN = {**{code: struct.calcsize(plain) for code, plain in _PLAIN.items()}, "s": 4, "o": 4, "a": 4, "(": 8, "{": 8}


class MalformedMessage(Exception):
    """Not a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        fields: header fields by number.
        body: the values that its signature says.
    """

    kind: int
    serial: int
    fields: dict[int, Any] = field(default_factory=dict)
    body: tuple[Any, ...] = ()

    @property
    def member(self) -> str:
        return str(self.fields.get(MEMBER, ""))


def call(
    serial: int, destination: str, path: str, interface: str, member: str, signature: str = "", *body: Any
) -> Message:
    """A method call."""
    fields: dict[int, Any] = {PATH: path, DESTINATION: destination, INTERFACE: interface, MEMBER: member}
    if signature:
        fields[SIGNATURE] = signature
    return Message(CALL, serial, fields, body)


# --- writing


def encode(message: Message) -> bytes:
    """A message as bytes."""
    body = bytearray()
    for kind, value in zip(types(message.fields.get(SIGNATURE, "")), message.body, strict=True):
        _write(body, kind, value)
    head = bytearray(struct.pack("<cBBBII", b"l", message.kind, 0, 1, len(body), message.serial))
    fields = [(number, (_FIELD_TYPES[number], value)) for number, value in message.fields.items()]
    _write(head, "a(yv)", fields)
    _pad(head, 8)
    return bytes(head + body)


def _write(out: bytearray, kind: str, value: Any) -> None:
    code = kind[0]
    _pad(out, _ALIGN.get(code, 1))
    if code in _PLAIN:
        out += struct.pack("<" + _PLAIN[code], value)
    elif code in "so":
        raw = str(value).encode()
        out += struct.pack("<I", len(raw)) + raw + b"\0"
    elif code == "g":
        raw = str(value).encode()
        out += bytes([len(raw)]) + raw + b"\0"
    elif code == "v":
        _write(out, "g", value[0])
        _write(out, value[0], value[1])
    elif code == "a":
        _write_array(out, kind[1:], value)
    else:
        for part, one in zip(types(kind[1:-1]), value, strict=True):
            _write(out, part, one)


def _write_array(out: bytearray, kind: str, value: Any) -> None:
    at = len(out)
    out += b"\0\0\0\0"
    _pad(out, _ALIGN.get(kind[0], 1))
    start = len(out)
    for one in value.items() if isinstance(value, dict) else value:
        _write(out, kind, one)
    out[at : at + 4] = struct.pack("<I", len(out) - start)


def _pad(out: bytearray, align: int) -> None:
    out += b"\0" * (-len(out) % align)


# --- reading


def types(signature: str) -> Iterator[str]:
    """The complete types of a signature."""
    position = 0
    while position < len(signature):
        end = _type_end(signature, position, 0)
        yield signature[position:end]
        position = end


def _type_end(signature: str, position: int, depth: int) -> int:
    if depth > DEEPEST or position >= len(signature):
        raise MalformedMessage("a signature without end")
    code = signature[position]
    if code == "a":
        return _type_end(signature, position + 1, depth + 1)
    if code in "({":
        position += 1
        closing = ")" if code == "(" else "}"
        while position < len(signature) and signature[position] != closing:
            position = _type_end(signature, position, depth + 1)
        if position >= len(signature):
            raise MalformedMessage("a signature without end")
        return position + 1
    if code not in _PLAIN and code not in "sogv":
        raise MalformedMessage(f"type {code!r}")
    return position + 1


def length(fixed: bytes) -> int:
    """The length of the whole message that begins with these FIXED bytes.

    Raises:
        MalformedMessage: no message begins so, or one that is too long.
    """
    if len(fixed) != FIXED or fixed[:1] not in (b"l", b"B") or fixed[3] != 1:
        raise MalformedMessage("not a message")
    order = "<" if fixed[:1] == b"l" else ">"
    (body,) = struct.unpack_from(order + "I", fixed, 4)
    (fields,) = struct.unpack_from(order + "I", fixed, 12)
    whole = FIXED + int(fields) + (-(FIXED + int(fields)) % 8) + int(body)
    if whole > LONGEST:
        raise MalformedMessage("a message that is too long")
    return whole


def decode(data: bytes) -> Message:
    """A message from its bytes.

    Raises:
        MalformedMessage: it is none.
    """
    if length(data[:FIXED]) != len(data):
        raise MalformedMessage("not a whole message")
    order = "<" if data[:1] == b"l" else ">"
    reader = _MessageReader(data, order)
    try:
        _, kind, _, _, _, serial = struct.unpack_from(order + "cBBBII", data)
        reader.at = 12
        fields = dict(reader.value("a(yv)", 0))
        reader.align(8)
        body = tuple(reader.value(one, 0) for one in types(str(fields.get(SIGNATURE, ""))))
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedMessage(str(error)) from None
    return Message(kind, serial, fields, body)


class _MessageReader:
    def __init__(self, data: bytes, order: str) -> None:
        self._data = data
        self._order = order
        self.at = 0

    def align(self, size: int) -> None:
        self.at += -self.at % size

    def value(self, kind: str, depth: int) -> Any:
        if depth > DEEPEST:
            raise MalformedMessage("values within values without end")
        code = kind[0]
        self.align(_ALIGN.get(code, 1))
        if code in _PLAIN:
            (found,) = struct.unpack_from(self._order + _PLAIN[code], self._data, self.at)
            self.at += struct.calcsize(_PLAIN[code])
            return bool(found) if code == "b" else found
        if code in "so":
            return self._text(self.value("u", depth))
        if code == "g":
            return self._text(self.value("y", depth))
        if code == "v":
            inner = list(types(self.value("g", depth)))
            if len(inner) != 1:
                raise MalformedMessage("a variant of no single type")
            return self.value(inner[0], depth + 1)
        if code == "a":
            return self._array(kind[1:], depth + 1)
        return tuple(self.value(one, depth + 1) for one in types(kind[1:-1]))

    def _array(self, kind: str, depth: int) -> Any:
        size = self.value("u", depth)
        self.align(_ALIGN.get(kind[0], 1))
        end = self.at + size
        if end > len(self._data):
            raise MalformedMessage("an array that is cut off")
        found: list[Any] = []
        while self.at < end:
            before = self.at
            found.append(self.value(kind, depth))
            if self.at == before:
                raise MalformedMessage("an array of nothings, which would have no end")
        if self.at != end:
            raise MalformedMessage("an array of the wrong length")
        return _as_dict(found) if kind[0] == "{" else found

    def _text(self, size: int) -> str:
        raw = self._data[self.at : self.at + size]
        if len(raw) != size or self._data[self.at + size] != 0:
            raise MalformedMessage("a text that is cut off")
        self.at += size + 1
        return raw.decode()


def _as_dict(pairs: Sequence[Any]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except (TypeError, ValueError):
        raise MalformedMessage("a dictionary of what is no pair") from None
