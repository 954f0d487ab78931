"""D-Bus messages: against bytes that others' programs sent, forth and back, and everything that is no message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.machine import dbus
from pool.machine.dbus import CALL, RETURN, SIGNATURE, MalformedMessage, Message, call, decode, encode

#: The call that libdbus sends first on every connection, with serial 1.
HELLO = bytes.fromhex(
    "6c01000100000000010000006e000000"
    "01016f00150000002f6f72672f667265656465736b746f702f44427573000000"
    "06017300140000006f72672e667265656465736b746f702e4442757300000000"
    "02017300140000006f72672e667265656465736b746f702e4442757300000000"
    "030173000500000048656c6c6f000000"
)
EVERYTHING: tuple[str, tuple[Any, ...]] = (
    "ybnqiuxtdsogva{sv}a(susso)(i(ss))as",
    (
        255,
        True,
        -2,
        65535,
        -3,
        4_000_000_000,
        -(2**60),
        2**63,
        1.5,
        "grün",
        "/a/b",
        "a{sv}",
        ("t", 7),
        {"IdleHint": ("b", False), "Seat": ("(so)", ("seat0", "/x"))},
        [("2", 1000, "ada", "seat0", "/s/2")],
        (1, ("a", "")),
        [],
    ),
)


def test_a_message_has_the_bytes_that_others_send() -> None:
    said = call(1, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
    assert encode(said) == HELLO
    assert decode(HELLO) == said
    assert dbus.length(HELLO[:16]) == len(HELLO)


def test_every_type_goes_forth_and_back() -> None:
    signature, values = EVERYTHING
    back = decode(encode(Message(RETURN, 7, {SIGNATURE: signature, dbus.REPLY_SERIAL: 3}, values)))
    plain: list[Any] = list(values)
    plain[12] = 7
    plain[13] = {"IdleHint": False, "Seat": ("seat0", "/x")}
    assert (back.kind, back.serial, back.fields[dbus.REPLY_SERIAL]) == (RETURN, 7, 3)
    assert list(back.body) == plain


def test_the_other_byte_order_is_read() -> None:
    big = b"B\x02\x00\x01" + (8).to_bytes(4, "big") + (9).to_bytes(4, "big")
    fields = b"\x05\x01u\x00" + (3).to_bytes(4, "big") + b"\x08\x01g\x00\x01t\x00"
    message = big + len(fields).to_bytes(4, "big") + fields
    message += b"\0" * (-len(message) % 8) + (5).to_bytes(8, "big")
    assert decode(message) == Message(RETURN, 9, {5: 3, 8: "t"}, (5,))


@pytest.mark.parametrize(
    ("signature", "parts"),
    [("", []), ("su", ["s", "u"]), ("a{sv}(i(ss))as", ["a{sv}", "(i(ss))", "as"]), ("aai", ["aai"])],
)
def test_signatures(signature: str, parts: list[str]) -> None:
    assert list(dbus.types(signature)) == parts


@pytest.mark.parametrize("signature", ["a", "(", "(s", "z", "{s", "a" * 100, "(" * 100, ")"])
def test_signatures_that_are_none(signature: str) -> None:
    with pytest.raises(MalformedMessage):
        list(dbus.types(signature))


def test_a_message_that_is_cut_off_or_too_long_is_refused() -> None:
    for size in range(len(HELLO)):
        with pytest.raises(MalformedMessage):
            decode(HELLO[:size])
    with pytest.raises(MalformedMessage, match="too long"):
        dbus.length(b"l\x01\x00\x01" + b"\xff" * 12)
    with pytest.raises(MalformedMessage, match="not a message"):
        dbus.length(b"GET / HTTP/1.1\r\n")


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_message_with_one_wrong_byte_is_read_or_refused(position: int, value: int) -> None:
    signature, values = EVERYTHING
    data = bytearray(encode(Message(CALL, 7, {SIGNATURE: signature}, values)))
    data[position % len(data)] = value
    try:
        decode(bytes(data))
    except MalformedMessage:
        pass


def test_an_array_of_nothings_has_an_end() -> None:
    """One wrong byte can make an element type empty; reading it never came to the array's end."""
    data = bytearray(encode(Message(CALL, 7, {SIGNATURE: "a(y)"}, ([(1,)],))))
    place = bytes(data).index(b"\x04a(y)\0")
    data[place : place + 6] = b"\x03a()\0\0"
    with pytest.raises(MalformedMessage):
        decode(bytes(data))
