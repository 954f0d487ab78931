"""How large a piece of a trace is run by the real roles is said in the environment."""

from __future__ import annotations

import pytest

from tests.benchmarks.flock_roles import whole_number


def test_the_size_of_the_piece_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOLNODE_TRACE_JOBS", raising=False)
    assert whole_number("POOLNODE_TRACE_JOBS", 2000) == 2000
    monkeypatch.setenv("POOLNODE_TRACE_JOBS", "187520")
    assert whole_number("POOLNODE_TRACE_JOBS", 2000) == 187_520


@pytest.mark.parametrize("said", ["", "0", "-3", "2.5", "many", "\u0663"])
def test_a_size_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("POOLNODE_TRACE_SHARE", said)
    with pytest.raises(ValueError, match="POOLNODE_TRACE_SHARE"):
        whole_number("POOLNODE_TRACE_SHARE", 10)
