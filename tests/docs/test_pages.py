"""The pages hold together: the index names each, ids and sections lead to a row, and what a page names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

SECTION = re.compile(r"\b(TS|EV|VS|WR|RL) (\d+(?:\.\d+)*)")
PROMISES = {"A": 16, "B": 5, "C": 7, "D": 8, "E": 8, "F": 8, "G": 9, "H": 8}


@cache
def sources(root: Path) -> dict[Path, str]:
    """Each text of the project that people read or write, by its path."""
    kinds = ("*.py", "*.md", "*.c", "*.h")
    rooms = (root / "pool", root / "docs", root / "tests", root / "examples")
    found = [path for room in rooms for kind in kinds for path in room.rglob(kind)]
    return {path: path.read_text() for path in [*found, root / "README.md", root / "CONTRIBUTING.md"]}


def test_the_index_names_every_page(repository: Path) -> None:
    index = (repository / "docs" / "README.md").read_text()
    pages = {str(path.relative_to(repository / "docs")) for path in (repository / "docs").rglob("*.md")}
    named = set(re.findall(r"\]\(([^)]+)\)", index))
    assert pages - named == {"README.md"}
    assert named - pages == set()


def test_each_promise_is_a_row(repository: Path) -> None:
    text = (repository / "docs" / "promises.md").read_text()
    rows = re.findall(r"^\| ([A-H]\d+) \|", text, re.MULTILINE)
    assert rows == [f"{letter}{number}" for letter, last in PROMISES.items() for number in range(1, last + 1)]


@pytest.mark.parametrize("page", ["docs/promises.md", "docs/papers.md", "CONTRIBUTING.md"])
def test_what_a_page_names_is_there(repository: Path, page: str) -> None:
    text = (repository / page).read_text()
    named = set(re.findall(r"`((?:pool|tests|docs|examples)/[\w./-]+)`", text))
    assert named
    assert [name for name in sorted(named) if not (repository / name).exists()] == []
    local = set(re.findall(r"`([\w-]+\.md)`", text))
    assert [name for name in sorted(local) if not (repository / "docs" / name).exists()] == []


def test_it_is_said_where_each_folder_is_tested(repository: Path) -> None:
    text = (repository / "tests" / "README.md").read_text()
    rows = re.findall(r"^\| `(pool/[\w/]+)` \|", text, re.M)
    sources = [path for kind in ("*.py", "*.c") for path in (repository / "pool").rglob(kind)]
    assert sorted(rows) == sorted({str(path.parent.relative_to(repository)) for path in sources} - {"pool"})
    paths = set(re.findall(r"`((?:pool|tests|docs|examples)/[\w./]*)`", text))
    assert [path for path in sorted(paths) if not (repository / path).exists()] == []
    own = {str(path.relative_to(repository)) for path in (repository / "tests").iterdir() if any(path.rglob("*.py"))}
    assert {path for path in own if not any(f"`{path}" in row for row in text.splitlines())} == set()


def test_each_section_of_a_paper_that_is_named_anywhere_is_a_row(repository: Path) -> None:
    rows = set(re.findall(r"^\| ((?:TS|EV|VS|WR|RL) [\d.]+) \|", (repository / "docs" / "papers.md").read_text(), re.M))
    missing = {
        f"{paper} {number} ({path.relative_to(repository)})"
        for path, text in sources(repository).items()
        for paper, number in SECTION.findall(text)
        if f"{paper} {number}" not in rows
    }
    assert not missing


def test_no_text_refers_to_a_page_that_is_not_part_of_the_project(repository: Path) -> None:
    stray = re.compile(r"\b(DESIGN|HOUSE|MISSION|EVIDENCE|DEDICATED|FLOCKING) \d")
    assert [str(path) for path, text in sources(repository).items() if stray.search(text)] == []
