"""Signatures of ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.wire.signing import SigningKey, is_signed
from pool.wire.trust_files import TrustError


def test_a_signature_is_of_one_text_and_one_key(tmp_path: Path) -> None:
    key, other = SigningKey.open(tmp_path / "key"), SigningKey(SigningKey.new_secret())
    assert SigningKey.open(tmp_path / "key").public == key.public
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    signature = key.sign(b"text")
    assert is_signed(b"text", signature, key.public)
    assert not is_signed(b"texts", signature, key.public)
    assert not is_signed(b"text", signature, other.public)
    for bad in ("", "00", "zz", "\u0660" * 128, signature[:-2]):
        assert not is_signed(b"text", bad, key.public)
        assert not is_signed(b"text", signature, bad)


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    with pytest.raises(TrustError):
        SigningKey.open(tmp_path / "key")
