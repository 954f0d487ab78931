"""Every page of docs/policies: what it must say, and a configuration without a warning."""

from __future__ import annotations

import pytest

from tests.conftest import REPOSITORY
from tests.policies.support import PAGES, settings_of, text_of

NAMES = sorted(page.stem for page in PAGES.glob("*.md") if page.stem != "README")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_parts(name: str) -> None:
    text = text_of(name)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## The configuration", "## Result", "## Where it comes from"]
    assert text.startswith("# ")
    assert "    $ poolnode why" in text
    assert any(paper in text.rpartition("## Where it comes from")[2] for paper in ("EV ", "TS ", "RL ", "WR "))


@pytest.mark.parametrize("name", NAMES)
def test_its_configuration_is_read_without_a_warning(name: str) -> None:
    settings = settings_of(name)
    assert settings.warnings == []
    assert settings.values


def test_the_index_lists_every_page_and_the_readme_the_index() -> None:
    index = (PAGES / "README.md").read_text()
    assert [name for name in NAMES if f"({name}.md)" not in index] == []
    assert "docs/policies/README.md" in (REPOSITORY / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_story_shows_what_it_does(name: str) -> None:
    assert (REPOSITORY / "tests" / "policies" / f"test_{name.replace('-', '_')}.py").exists()
