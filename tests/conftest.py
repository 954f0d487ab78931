"""Fixtures of every test: a HOME of its own, so that no test reads or leaves anything in the user's. And a fixture that
many share: the keeper, compiled once however many processes the tests run in (compiler.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pool.checkpoint.build import CannotBuild, build, compiler
from pool.classad.names import SHADOWED
from tests.ordering import for_workers
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

REPOSITORY = Path(__file__).resolve().parent.parent
USER_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")

# No test fails for how long the machine takes over it: another may keep it busy. The ordinary run draws the same cases
# every time; `python -m tests.explore` draws new ones, with this variable set to the seed of its round.
EXPLORED_SEED = "TESTS_EXPLORED_SEED"
settings.register_profile("fixed", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
FIXED = settings.get_profile("fixed")
settings.register_profile("explore", parent=FIXED, derandomize=False, print_blob=True, max_examples=500)
settings.load_profile("explore" if EXPLORED_SEED in os.environ else "fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Read by tests/e2e/conftest.py; here, since options are known before that is."""
    text = "whose nodes the end-to-end tests run on: one choice for each test, or one of the two for all, or both"
    parser.addoption("--pools", choices=["one", "own", "root", "both"], default="one", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where cases are explored, tests of several seeds (`parametrize("seed", ...)`) get others than the fixed ones."""
    first = int(os.environ.get(EXPLORED_SEED, 0)) * 1000
    if not first:
        return
    markers = metafunc.definition.own_markers
    for place, mark in enumerate(markers):
        if mark.name == "parametrize" and mark.args[0] == "seed":
            markers[place] = pytest.mark.parametrize("seed", [first + number for number in mark.args[1]]).mark


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where cases are explored, only tests that draw run. The others are put in order for the workers of this run."""
    if EXPLORED_SEED not in os.environ:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        items[:] = for_workers(items, lambda item: item.nodeid.partition("::")[0], workers)
        return
    drawing = [item for item in items if _draws(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in drawing])
    items[:] = drawing


def _draws(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    by_seed = hasattr(item, "callspec") and "seed" in item.callspec.params
    return by_seed or getattr(item.obj, "is_hypothesis_test", False) or "TestTalk" in item.nodeid


def passable(directory: Path) -> None:
    """Let every user go through it and all that is above it, wherever the tests' own directory lies."""
    for place in (directory, *directory.parents):
        mode = place.stat().st_mode & 0o7777
        if mode & 0o111 != 0o111:
            place.chmod(mode | 0o111)


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of one run of the tests have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(autouse=True, scope="session")
def _role_context(tmp_path_factory: pytest.TempPathFactory, run_directory: Path) -> Iterator[None]:
    """For as long as the tests run, in this process and in those it starts: HOME is an empty directory, $CC remembers
    what it compiled, and Python keeps its bytecode where it must not keep it beside the sources.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in (*USER_DIRECTORIES, *(name for name in os.environ if name.startswith("POOLNODE_"))):
        patch.delenv(name, raising=False)
    compiled = run_directory / "compiled"
    compiled.mkdir(exist_ok=True)
    with contextlib.suppress(CannotBuild):
        patch.setenv("CC", f"{sys.executable} -IS {REPOSITORY}/tests/compiler.py {compiled} {compiler()}")
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        patch.delenv("PYTHONDONTWRITEBYTECODE")
        patch.setenv("PYTHONPYCACHEPREFIX", str(run_directory / "bytecode"))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _no_shadowed_scopes() -> Iterator[None]:
    """Each test begins as a fresh process does: no ad has yet used the name of a scope for an attribute of its own."""
    before = set(SHADOWED)
    SHADOWED.clear()
    yield
    SHADOWED.update(before)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def keeper_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keeper of these sources, which every user may run."""
    return _built(tmp_path_factory.mktemp("keeper"), sanitize=False)


@pytest.fixture(scope="session")
def sanitized_keeper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same under sanitizers of memory and arithmetic."""
    try:
        return _built(tmp_path_factory.mktemp("keeper"), sanitize=True)
    except CannotBuild as error:
        pytest.skip(str(error))


def _built(directory: Path, *, sanitize: bool) -> Path:
    directory.chmod(0o755)
    program = build(directory / "keeper", sanitize=sanitize)
    program.chmod(0o755)
    return program
