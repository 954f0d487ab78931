"""Nodes for each test; and after it nothing of them is left, nor did any of them show a stack trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import support


@pytest.fixture
def nodes() -> Iterator[support.Nodes]:
    with support.nodes() as made:
        yield made
        for node in made.all:
            assert "Traceback" not in node.text, node.text
            assert not any("trace" in line for line in node.log), node.text
