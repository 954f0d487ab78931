"""The ordinary run draws the same cases every time; `tests.explore` draws others, and says how to see a find again."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conftest import REPOSITORY
from tests.explore import drawing_files, main

FAILS_SOMETIMES = """
    import pytest
    from hypothesis import given
    from hypothesis import strategies as st

    @given(st.integers())
    def test_small(number):
        assert abs(number) < 1000

    @pytest.mark.parametrize("seed", range(3))
    def test_fixed(seed):
        assert seed < 3

    def test_that_does_not_draw():
        assert False
"""


def test_the_ordinary_run_draws_the_same_cases_every_time() -> None:
    assert settings().derandomize


def test_the_files_that_draw_are_found() -> None:
    names = {path.name for path in drawing_files(REPOSITORY / "tests")}
    assert {"test_activity.py", "test_protocol.py", "test_slot_index.py"} <= names
    assert "test_killing.py" not in names


def test_finds_are_told_with_the_command_that_shows_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pytest that begins closes the temporary directory of all runs to other users.
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))
    hooks = "pytest_collection_modifyitems, pytest_generate_tests"
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {hooks}\n")
    file = tmp_path / "test_sometimes.py"
    file.write_text(textwrap.dedent(FAILS_SOMETIMES))
    status = main(["--minutes", "0", "--seed", "7", str(file)])
    told = capfd.readouterr().out
    assert status == 1
    assert told.count("found: TESTS_EXPLORED_SEED=7 python -m pytest -n0 --hypothesis-seed=7") == 4
    assert "test_fixed[7000]" in told
    assert "test_that_does_not_draw" not in told
    assert "round 1, seed 7: 4 finds so far" in told
