"""Nodes for each test; and after it nothing of them is left, nor did any of them show a stack trace.

A test that fails shows the last lines of its nodes' logs: a failure that comes once in a hundred runs on one machine
can only be understood from what the nodes said at that time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.e2e import support

#: Characters of each node's log that a failure shows.
SHOWN = 4000


@pytest.fixture
def nodes() -> Iterator[support.Nodes]:
    with support.nodes() as made:
        yield made
        for node in made.all:
            assert "Traceback" not in node.text, node.text
            assert not any("trace" in line for line in node.log), node.text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    made = getattr(item, "funcargs", {}).get("nodes")
    if report.when == "call" and report.failed and isinstance(made, support.Nodes):
        for node in made.all:
            report.sections.append((f"log of node {node.state.stem}", node.text[-SHOWN:]))
    return report
