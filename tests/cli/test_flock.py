"""The listing of `poolnode flock`: rights, limits and troubles of each pool, in words."""

from __future__ import annotations

from typing import Any

import pytest

from pool.cli.flock import _status

POOL: dict[str, Any] = {
    **{"pool": "chem", "in": True, "out": True, "invited": True, "connected_in": True, "trouble": "", "address": "tcp://x:1"},
    **{"offered": 2, "borrowed": 1, "lent": 0, "waiting": 0, "round_trip": 0.001, "values": [], "guests": {}},
    **{"users_there": {"alice": 1}, "machines": None, "users": None, "hours": [], "kinds": "", "direct": []},
    **{"agreement": "idle-only", "we_want": "idle-only", "they_want": "", "disputed": 0.0, "ledger_trouble": ""},
    **{"not_lent": "", "bound": 0.0, "balance": 0.0, "running": 0.0, "history": []},
}  # fmt: skip


def said(capsys: pytest.CaptureFixture[str], **change: Any) -> list[str]:
    assert _status({"name": "physics", "pools": [{**POOL, **change}], "private": []}, as_json=False) == 0
    return capsys.readouterr().out.splitlines()


def test_rights_and_users_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys)
    assert lines[1].split() == ["chem", "yes", "yes", "2", "1", "0", "0"]
    assert ["chem", "alice", "1", "there"] in [line.split() for line in lines]


def test_trouble_stands_in_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = "cannot connect to tcp://x:1: nobody listens there"
    lines = said(capsys, trouble=trouble, invited=False, connected_in=False)
    assert lines[1].split() == ["chem", "not", "invited", "not", "reached", "2", "1", "0", "0"]
    assert f"chem: {trouble}" in lines
    assert not any("no agreement" in line for line in lines)


def test_limits_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"machines": 1, "users": ["alice", "bob"], "hours": ["18:00-08:00", "sun"], "kinds": "Memory < 9"}
    words = "at most 1 slot; only of alice, bob; only 18:00-08:00, sun; only on machines with Memory < 9"
    assert f"chem: its jobs here: {words}" in said(capsys, **limits)
    assert "chem: its jobs here: only of nobody" in said(capsys, users=[])
    assert not any("its jobs here" in line for line in said(capsys, users=[], **{"in": False}))


def test_a_pool_that_only_the_file_names_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, invited=False, connected_in=False, address="", out=False)
    assert "chem: there is no agreement with it, but FLOCK_FILE names it" in lines
