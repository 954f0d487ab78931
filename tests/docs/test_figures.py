"""The page of figures: each row says which benchmark made it, and each missed goal what stands in the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks import figures
from tests.benchmarks.rows import BENCHMARKS

assert figures  # enters the benchmarks into the list

COLUMNS = ["what", "goal", "measured", "met", "peer, ratio", "when", "by"]
MISSED = re.compile(r"\[[^]]+\]\(#([\w-]+)\)")


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "figures.md").read_text()


def tables(page: str) -> list[list[list[str]]]:
    """Each table as rows of cells, the head first, without the line below it."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE)
    split = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()] for block in blocks]
    return [[rows[0], *rows[2:]] for rows in split]


def rows_of_figures(page: str) -> list[list[str]]:
    return [row for table in tables(page) if table[0] == COLUMNS for row in table[1:]]


def anchors(page: str) -> set[str]:
    """The address of each heading, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_row_has_all_cells(page: str) -> None:
    assert [row for row in rows_of_figures(page) if len(row) != len(COLUMNS)] == []


def test_each_row_says_what_made_it(page: str, repository: Path) -> None:
    def there(by: str) -> bool:
        name = by.strip("`")
        path = repository / name.replace(".", "/")
        return by == "by hand" or name in BENCHMARKS or (repository / name).is_file() or _module(path)

    assert [row[0] for row in rows_of_figures(page) if not there(row[-1])] == []


def _module(path: Path) -> bool:
    return (path / "__main__.py").is_file() or path.with_suffix(".py").is_file()


def test_each_benchmark_has_a_row(page: str) -> None:
    assert set(BENCHMARKS) - {row[-1].strip("`") for row in rows_of_figures(page)} == set()


def test_each_row_with_a_goal_says_whether_it_is_met(page: str) -> None:
    silent = [row[0] for row in rows_of_figures(page) if row[1] and not row[3].startswith(("yes", "**[no](#"))]
    assert silent == []


def test_each_missed_goal_leads_to_what_stands_in_the_way(page: str) -> None:
    linked = set(MISSED.findall(page))
    assert linked
    assert linked - anchors(page) == set()
