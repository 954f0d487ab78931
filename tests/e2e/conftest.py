"""Nodes for each test; and after it nothing of them is left, nor did any of them show a stack trace.

A test that fails shows the last lines of its nodes' logs: a failure that comes once in a hundred runs on one machine
can only be understood from what the nodes said at that time.

Where root runs the suite, each test has two ways (`WAYS`): on nodes of the user who runs it, whose jobs it submits
himself; and on nodes of root's with RUN_AS = owner, where the whole test is an ordinary user (tests/ordinary_user.py).
An ordinary run of the suite takes one way for each test, a third of them and at least one of each module on
root's nodes, by their names; `--pools both` takes both. A test for which one way only makes sense says so and why:
`pytest.mark.own_pool("it starts root's nodes itself")`.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.conftest import passable
from tests.e2e import support
from tests.e2e.node_forks import node_forks
from tests.ordinary_user import OrdinaryUser

OWN, ROOTS = WAYS = ("own", "root")
#: Characters of each node's log that a failure shows.
SHOWN = 4000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "whose_pool" in metafunc.fixturenames:
        ways = ways_of(metafunc, metafunc.config.getoption("--pools"))
        ids = [ROOTS if way == ROOTS else getattr(pytest, "HIDDEN_PARAM", OWN) for way in ways]
        metafunc.parametrize("whose_pool", ways, ids=ids, indirect=True, scope="module")


def ways_of(metafunc: pytest.Metafunc, pools: str) -> list[str]:
    """The pools that a test runs on, as the option says."""
    if not support.ROOT or not _has_two_ways(metafunc.module, metafunc.function):
        return [] if pools == "root" and support.ROOT else [OWN]
    if pools in ("own", "root", "both"):
        return {"own": [OWN], "root": [ROOTS], "both": list(WAYS)}[pools]
    name, module = metafunc.function.__name__, metafunc.module
    tests = {
        other: zlib.crc32(other.encode())
        for other, function in vars(module).items()
        if other.startswith("test_") and _has_two_ways(module, function)
    }
    chosen = tests[name] % 3 == 0 or name == min(tests, key=tests.__getitem__)
    return [ROOTS if chosen else OWN]


def _has_two_ways(module: object, function: object) -> bool:
    of_module = getattr(module, "pytestmark", [])
    marks = [*(of_module if isinstance(of_module, list) else [of_module]), *getattr(function, "pytestmark", [])]
    return not any(mark.name == "own_pool" for mark in marks)


@pytest.fixture(scope="session", autouse=True)
def _node_forks() -> Iterator[None]:
    """The process that nodes are forked from, begun before any test is another user."""
    with node_forks() as support.forks:
        yield
    support.forks = None


@pytest.fixture(scope="module", autouse=True)
def whose_pool(request: pytest.FixtureRequest, run_directory: Path) -> Iterator[OrdinaryUser | None]:
    """The user who the test is, on root's pool; None on a pool of the user's own who runs the suite."""
    if request.param == OWN:
        yield None
        return
    passable(run_directory)  # Python's bytecode lies there
    place = Path(tempfile.mkdtemp(prefix="e2e-user-"))
    place.chmod(0o755)
    try:
        user = OrdinaryUser(place)
        with user.is_the_tester(), support.submitting(user):
            yield user
    finally:
        shutil.rmtree(place)


@pytest.fixture
def tmp_path(tmp_path: Path, whose_pool: OrdinaryUser | None) -> Iterator[Path]:
    """The user's, where the test is one: not below pytest's own directory, which each pytest closes to others."""
    if whose_pool is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="e2e-tmp-") as place:
        yield whose_pool.owns(Path(place))


@pytest.fixture
def nodes(whose_pool: OrdinaryUser | None) -> Iterator[support.Nodes]:
    with support.nodes() as made:
        yield made
        for node in made.all:
            assert "Traceback" not in node.text, node.text
            assert not any("trace" in line for line in node.log), node.text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        for node in [node for made in support.there for node in made.all]:
            report.sections.append((f"log of node {node.state.stem}", node.text[-SHOWN:]))
    return report
