"""Frames: whole however they are cut, bounded before they come, and nothing but msgpack."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.wire.errors import LocalFault, RemoteFault
from pool.wire.frames import HEADER, Decoder, Encoder, decode

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=5),
    max_leaves=20,
)


def whole(value: object) -> bytes:
    return b"".join(Encoder().encode(value, 1 << 20))


@given(st.lists(values, max_size=5), st.data())
def test_frames_come_whole_however_they_are_cut(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(whole(value) for value in sent)
    decoder = Decoder(1 << 20)
    got = []
    place = 0
    while place < len(stream):
        step = data.draw(st.integers(1, len(stream) - place))
        got += list(decoder.decode(stream[place : place + step]))
        place += step
    assert [value for value, _ in got] == sent
    assert sum(size for _, size in got) == len(stream)
    assert decoder.pending == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_a_frame_or_a_fault(data: bytes) -> None:
    with contextlib.suppress(RemoteFault):
        decode(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_a_fault_or_not_whole(data: bytes) -> None:
    decoder = Decoder(200)
    with contextlib.suppress(RemoteFault):
        for value, size in decoder.decode(data):
            assert size <= 204
            del value
        assert decoder.pending <= 204


def test_a_long_frame_is_refused_by_its_first_four_bytes() -> None:
    with pytest.raises(RemoteFault, match="a frame of 101 bytes, where 100 are allowed"):
        list(Decoder(100).decode(HEADER.pack(101)))
    assert list(Decoder(100).decode(HEADER.pack(100))) == []
    with pytest.raises(RemoteFault):
        list(Decoder(1 << 24).decode(b"GET / HTTP/1.1\r\n\r\n"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01\x01",  # two values
        b"\xc1",  # a byte that means nothing
        b"\xdd\xff\xff\xff\xff",  # a list of 4 billion
        b"\x91" * 100_000 + b"\x01",  # a list in a list in a list
        b"\x81" * 5000 + b"\x01",
        msgpack.packb(msgpack.ExtType(7, b"x")),
        b"\x81\x90\x01",  # a map whose key is a list
        b"\xa5abc",
    ],
)
def test_bodies_that_are_none(body: bytes) -> None:
    with pytest.raises(RemoteFault):
        decode(body)


@pytest.mark.parametrize("value", [{1, 2}, object(), 2**64, -(2**63) - 1, b"x" * 2000, 1j])
def test_what_cannot_travel(value: object) -> None:
    encoder = Encoder()
    with pytest.raises(LocalFault):
        encoder.encode(value, 1000)
    assert encoder.encode([1], 1000) == (HEADER.pack(2), b"\x91\x01")


def test_a_knot_cannot_travel() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(LocalFault):
        Encoder().encode(knot, 1000)


def test_names_that_are_not_utf8_travel() -> None:
    (got, _), *_ = Decoder(100).decode(whole(["caf\udce9"]))
    assert got == ["caf\udce9"]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5), st.binary(max_size=200))
def test_bytes_that_are_not_copied_make_the_same_value(before: list[int], data: bytes) -> None:
    head, body = Encoder().encode_bytes(before, data, 1 << 20)
    assert body is data
    ((value, size),) = Decoder(1 << 20).decode(head + body)
    assert (value, size) == ([*before, data], len(head) + len(body))
    with pytest.raises(LocalFault, match="takes at most 100"):
        Encoder().encode_bytes(before, b"x" * 101, 100)


@pytest.mark.parametrize("within", [[], [b"name"], ["file", 7, b"name"], [0] * 14])
def test_bytes_at_the_end_of_a_list_are_not_copied_either(within: list[object]) -> None:
    before, data = [3, 7, 1], b"x" * 100_000
    head, body = Encoder().encode_bytes(before, data, 1 << 20, within)
    assert body is data
    assert head + body == b"".join(Encoder().encode([*before, [*within, data]], 1 << 20))
    with pytest.raises(LocalFault, match="cannot send this value"):
        Encoder().encode_bytes(before, data, 1 << 20, [object()])
