"""The beginning of the last lines, against the plain way of finding it, and how little is read for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pool.jobs import tail
from pool.jobs.tail import start_of
from pool.testing import run_virtual


async def found(text: bytes, lines: int, looked: list[int] | None = None) -> int:
    async def read(offset: int, size: int) -> bytes:
        if looked is not None:
            looked.append(size)
        return text[offset : offset + size]

    return await start_of(lines, len(text), read)


@given(st.lists(st.sampled_from([b"", b"a", b"bc"])), st.booleans(), st.integers(0, 6))
def test_as_if_it_were_read_from_the_beginning(parts: list[bytes], ended: bool, lines: int) -> None:
    text = b"\n".join(parts) + (b"\n" if ended and parts else b"")
    wanted = b"".join(text.splitlines(keepends=True)[-lines:] if lines else [])
    assert text[run_virtual(found(text, lines)) :] == wanted


def test_lines_longer_than_a_block_and_texts_longer_than_one() -> None:
    long = b"x" * (tail.BLOCK * 2 + 5)
    text = b"first\n" + long + b"\n" + long + b"\nlast"
    assert text[run_virtual(found(text, 2)) :] == long + b"\nlast"
    assert run_virtual(found(text, 9)) == 0
    looked: list[int] = []
    run_virtual(found(b"line\n" * 10**6, 10, looked))
    assert sum(looked) == tail.BLOCK
