"""The examples in Python of docs/python.md and docs/workflows.md run as they stand, against a node."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.support import ALL, Node, Nodes, environ_with_sources, nodes

PAGES = "".join((REPOSITORY / "docs" / name).read_text() for name in ("python.md", "workflows.md"))
EXAMPLES = re.findall(r"^## ([^\n]+)$|^```python\n(.*?)^```$", PAGES, re.M | re.S)


def examples() -> Iterator[tuple[str, str]]:
    heading = ""
    for title, code in EXAMPLES:
        heading = title or heading
        if code:
            yield heading, code


@pytest.fixture(scope="module")
def place(whose_pool: object) -> Iterator[tuple[Nodes, Node]]:
    with nodes() as made:
        yield made, made.start("own", ALL, SLOTS="2").ready()


@pytest.mark.parametrize(("heading", "code"), [pytest.param(*one, id=one[0]) for one in examples()])
def test_an_example(place: tuple[Nodes, Node], heading: str, code: str) -> None:
    made, node = place
    home = made.directory("home")
    environ = {**environ_with_sources(), "POOLNODE_ADDRESS": node.address, "HOME": str(home)}
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, f"{heading}\n{ran.stdout}{ran.stderr}"
    assert not ran.stderr, ran.stderr


def test_help_shows_what_there_is() -> None:
    code = "import pool.client, pydoc; print(pydoc.render_doc(pool.client, renderer=pydoc.plaintext))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in ("class ClassAd", "class JobEvent", "class PoolError", "class Pool(", "describe(what", "as_completed"):
        assert name in ran.stdout


def test_every_example_is_found() -> None:
    assert len(list(examples())) >= 6
    assert PAGES.count("```python") == len(list(examples()))
