"""Shown settings hold no secret, wherever it is used."""

from __future__ import annotations

from pathlib import Path

from pool.config import Settings, secrets
from pool.jobs.urls import HIDDEN

TEXT = """
MAIL_PASSWORD = sesame-open
ADMIN = post:$(MAIL_PASSWORD)@example.org
MONKEY = banana
LOG_LEVEL = debug
"""


def test_secrets_are_shown_neither_by_their_names_nor_where_they_are_used(tmp_path: Path) -> None:
    file = tmp_path / "pool.conf"
    file.write_text(TEXT)
    settings = Settings.load(file, sets={}, environ={})
    rows = {row["name"]: row["value"] for row in secrets.shown(settings, settings.describe())}
    assert rows["ADMIN"] == "post:(secret)@example.org"
    assert rows["LOG_LEVEL"] == "debug"
    (row,) = secrets.shown(settings, settings.describe(["MAIL_PASSWORD"]))
    assert row["value"] == HIDDEN
    assert secrets.shown(settings, settings.describe(["MONKEY"]))[0]["value"] == "banana"
    assert "sesame" not in repr(rows)


def test_keys_in_addresses_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "pool.conf"
    for address in (
        "s3://AKIA:sesame@store/bucket",
        "s3://sesame@store/b",
        "https://store/b?x=1&X-Amz-Signature=sesame",
    ):
        file.write_text(f"CHECKPOINT_SERVER = {address}\n")
        settings = Settings.load(file, sets={}, environ={})
        shown = repr(secrets.shown(settings, settings.describe(["CHECKPOINT_SERVER"])))
        assert "sesame" not in shown
        assert "store/b" in shown
        assert HIDDEN in shown
