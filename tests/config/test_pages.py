"""The pages of the documentation that are made from tables: they are current, and say what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.config import pages
from pool.config.table import ROWS
from pool.jobs import states
from pool.policy import slots, starter
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_is_current(name: str) -> None:
    written = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    assert written == pages.PAGES[name](), "run `python -m pool.config.pages docs`"


def test_every_setting_has_its_line() -> None:
    lines = pages.configuration().partition("## The shipped policies")[0].splitlines()
    for row in ROWS:
        (line,) = [line for line in lines if line.startswith((f"| `{row.name}` |", f"| `{row.name}` * |"))]
        assert row.doc in line
        assert ("*" in line.split("|")[1]) is not row.live


def test_every_move_has_its_line() -> None:
    page, _, start = pages.state_tables().partition("## The start of a job")
    assert starter.draw() in start
    for row in (*starter.answers(), *starter.moves()):
        assert "| " + " | ".join(row) + " |\n" in start
    moves = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line and "from" not in line]
    assert len(moves) == len(slots.TABLE) + len(states.TABLE)
    assert slots.draw() in page
    assert states.draw() in page
    assert "| Claimed Busy | suspend | Claimed Suspended | stop the job's processes where they are |" in page
    assert "| Idle | start | Running | write run |" in page


def test_a_table_in_a_cell_does_not_end_it() -> None:
    assert "`$(KeyboardBusy) \\|\\| $(CPUBusy)`" in pages.configuration()


def test_they_are_written(tmp_path: Path) -> None:
    pages.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configuration.md", "states.md", "submit.md"]
