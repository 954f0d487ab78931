"""Every body comes back as it was packed, and what is not one is refused whatever it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.remoteio import frames
from pool.remoteio.frames import ANSWERS, REQUESTS, Attr, MalformedFrame, Op

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
ATTR = st.builds(Attr, U64, U64, U64, U64, I64, I64, I64, U32, U32, U32, U32, U64, U64)
KINDS = {"1": st.integers(0, 255), "4": U32, "8": U64, "q": I64, "s": st.binary(max_size=50), "a": ATTR}


def values(shape: str) -> st.SearchStrategy[list[Any]]:
    parts: list[st.SearchStrategy[Any]] = []
    at = 0
    while at < len(shape):
        if shape[at] == "(":
            end = shape.index(")", at)
            parts.append(st.lists(values(shape[at + 1 : end]), min_size=3, max_size=3))
            at = end
        elif shape[at] == "f":
            parts.append(st.lists(st.integers(0, 255), min_size=3, max_size=3))
        else:
            parts.append(KINDS[shape[at]])
        at += 1
    return st.tuples(*parts).map(list)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*REQUESTS.values(), *ANSWERS.values()]).flatmap(lambda s: st.tuples(st.just(s), values(s))))
def test_a_body_comes_back(case: tuple[str, list[Any]]) -> None:
    shape, given_values = case
    assert frames.values_of(shape, frames.fields(shape, given_values)) == given_values


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Op)), st.binary(max_size=200))
def test_any_bytes_are_a_body_or_refused(op: Op, body: bytes) -> None:
    try:
        found = frames.values_of(REQUESTS[op], body)
    except MalformedFrame:
        pass
    else:
        assert frames.fields(REQUESTS[op], found) == body


def test_a_frame_says_its_size() -> None:
    frame = frames.request(Op.READ, 7, 1, 4096, 10)
    assert frames.header(frame) == (len(frame), Op.READ, 0, 7)
    assert frames.header(frames.refusal(Op.READ, 7, 5)) == (frames.HEADER, Op.READ, 5, 7)


def test_a_size_that_cannot_be_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        frames.header(b"\xff" * 20)
    with pytest.raises(MalformedFrame):
        frames.header(bytes(20))


def test_both_directions_know_every_operation() -> None:
    assert set(REQUESTS) == set(ANSWERS) == set(Op)
