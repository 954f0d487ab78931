"""Tokens as text, and what the store remembers."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.outside import OutsideWorld
from pool.wire.certificates import BadRequest
from pool.wire.tokens import REMEMBERED, ExpiredToken, Token, TokenStore, UsedToken, WrongToken

PRINT = "ab" * 32


class Store:
    """A store and the clock it goes by."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_800_000_000.0
        self.path = directory / "tokens.json"
        self.outside = OutsideWorld(wall=lambda: self.now)
        self.store = TokenStore(self.path, self.outside)

    def join(self, lifetime: float = 60) -> Token:
        return self.store.issue_join("tcp://h:1", PRINT, ["startd"], lifetime)


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_token_comes_back_from_its_text(kept: Store) -> None:
    made = kept.join()
    text = made.text
    assert text.startswith("pooljoin-")
    assert len(text) < 220
    assert Token.read(text) == made
    assert Token.read(f"  {text[:50]}\n {text[50:]}\n") == made
    user = kept.store.issue_user("tcp://h:1", PRINT, "jane", 60)
    assert Token.read(user.text) == user


@given(st.text())
def test_other_text_is_no_token(text: str) -> None:
    with pytest.raises(WrongToken):
        Token.read(text)


@given(st.binary(max_size=100))
def test_other_bytes_are_no_token(data: bytes) -> None:
    with pytest.raises(WrongToken):
        Token.read("pooljoin-" + base64.urlsafe_b64encode(data).decode())


def test_a_token_that_lost_or_changed_a_letter(kept: Store) -> None:
    text = kept.join().text
    for place in range(9, len(text)):
        with pytest.raises(WrongToken):
            Token.read(text[:place] + text[place + 1 :])
    other = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    with pytest.raises(WrongToken, match="not whole"):
        Token.read(other)


def test_nothing_that_opens_anything_is_kept(kept: Store) -> None:
    token = kept.join()
    assert token.secret not in kept.path.read_text()
    assert token.secret not in str(kept.store.listed())
    assert kept.store.listed()[0]["roles"] == ["startd"]


def test_looking_uses_nothing_up_and_using_does(kept: Store) -> None:
    token = kept.join()
    for _ in range(3):
        grant = kept.store.peek_grant(token.id, token.secret, key="k1")
    kept.store.use(grant, "k1")
    kept.store.use(grant, "k1")
    again = TokenStore(kept.path, kept.outside)
    assert again.peek_grant(token.id, token.secret, key="k1").roles == ("startd",)
    with pytest.raises(UsedToken):
        again.peek_grant(token.id, token.secret, key="k2")


def test_expired_ones_are_known_for_a_while(kept: Store) -> None:
    token = kept.join()
    kept.now += 61
    with pytest.raises(ExpiredToken):
        kept.store.peek_grant(token.id, token.secret)
    kept.now += REMEMBERED
    kept.join()
    with pytest.raises(WrongToken):
        kept.store.peek_grant(token.id, token.secret)


@pytest.mark.parametrize("number", [None, 7, "", "0" * 16, b"x", ["x"]])
@pytest.mark.parametrize("secret", [None, 7, "", "0" * 48, "\udc80"])
def test_whatever_else_is_shown_is_wrong(kept: Store, number: object, secret: object) -> None:
    token = kept.join()
    for shown in (number, token.id):
        with pytest.raises(WrongToken):
            kept.store.peek_grant(shown, secret)
    with pytest.raises(WrongToken):
        kept.store.user(f"{number}.{secret}")


def test_kinds_are_not_mixed_up(kept: Store) -> None:
    user = kept.store.issue_user("tcp://h:1", PRINT, "jane", 60)
    with pytest.raises(WrongToken):
        kept.store.peek_grant(user.id, user.secret)
    with pytest.raises(WrongToken):
        kept.store.user(kept.join().proof)
    assert kept.store.user(user.proof).name == "jane"


def test_names_are_checked(kept: Store) -> None:
    with pytest.raises(BadRequest):
        kept.store.issue_user("tcp://h:1", PRINT, "../jane", 60)
    with pytest.raises(BadRequest):
        kept.store.issue_join("tcp://h:1", PRINT, ["a b"], 60)
