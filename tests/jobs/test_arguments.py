"""Both ways of writing arguments, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.jobs.arguments import QuotingError, arguments_of, join_words, read_arguments, split_words, unquote

WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), max_size=5)


@pytest.mark.parametrize(
    ("text", "words", "old"),
    [
        ("a b  c", ("a", "b", "c"), True),
        ('a \\"b\\"', ("a", '"b"'), True),
        ("'a b'", ("'a", "b'"), True),
        ("\"a 'b c' d\"", ("a", "b c", "d"), False),
        ("\"'it''s' x\"", ("it's", "x"), False),
        ('"a ""b"""', ("a", '"b"'), False),
        ("\"''\"", ("",), False),
        ('""', (), False),
    ],
)
def test_both_styles(text: str, words: tuple[str, ...], old: bool) -> None:
    found = read_arguments(text)
    assert (found.words, found.old) == (words, old)


@pytest.mark.parametrize("text", ['"a', 'a"b', '"a" b', '"\'a"'])
def test_quotes_that_do_not_match(text: str) -> None:
    with pytest.raises(QuotingError):
        read_arguments(text)


@given(WORDS)
def test_words_survive_new_style(words: list[str]) -> None:
    assert split_words(join_words(words)) == words
    quoted = '"' + join_words(words).replace('"', '""') + '"'
    assert split_words(unquote(quoted)) == words


def test_attributes_stand_for_words() -> None:
    assert arguments_of({"Arguments": "a 'b c'"}) == ["a", "b c"]
    assert arguments_of({"Args": "a 'b c'"}) == ["a", "'b", "c'"]
    assert arguments_of({}) == []
