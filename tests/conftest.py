"""Fixtures of every test: a HOME of its own, so that no test reads or leaves anything in the user's. And a fixture that
many share: the keeper, compiled once however many processes the tests run in (compiler.py).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pool.checkpoint.build import CannotBuild, build, compiler
from pool.classad.names import SHADOWED
from tests.built import built_once
from tests.collecting import freeze_what_is_left, import_tests, made_to_stay
from tests.ordering import for_workers
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

REPOSITORY = Path(__file__).resolve().parent.parent
#: The compiler of the tests.
REMEMBERS = "tests/compiler.py"
#: The environment variable for a run of some tests by another run of the tests: the keeper that this one has built.
GIVEN_KEEPER = "TESTS_KEEPER"
Built = Callable[..., Path]
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


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Workers collect the same tests beside each other."""
    with made_to_stay():
        if "PYTEST_XDIST_WORKER" in os.environ:
            given = [Path(argument.partition("::")[0]) for argument in session.config.args]
            files = sorted({file for place in given for file in place.absolute().rglob("test_*.py")})
            worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
            import_tests(REPOSITORY, files, worker, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
        return (yield)


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
        if REMEMBERS not in compiler():  # else it remembers already, for the whole of `.ci/run`
            patch.setenv("CC", f"{sys.executable} -IS {REPOSITORY}/{REMEMBERS} {compiled} {compiler()}")
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        patch.delenv("PYTHONDONTWRITEBYTECODE")
        patch.setenv("PYTHONPYCACHEPREFIX", str(run_directory / "bytecode"))
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> Iterator[None]:
    """No test pays for a search for garbage among all that those before it have left."""
    yield
    freeze_what_is_left()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No garbage is collected meanwhile, and a collection that a test asks for looks at what the test made."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


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
def built(run_directory: Path) -> Built:
    """Builds a program of these sources once for all processes of this run; its path."""

    def build_program(name: str, **how: Any) -> Path:
        return built_once(run_directory / "programs" / name, functools.partial(build, **how))

    return build_program


@pytest.fixture(scope="session")
def keeper_program(built: Built) -> Path:
    """A keeper of these sources, which every user may run."""
    given = os.environ.get(GIVEN_KEEPER)
    return built("keeper") if given is None else Path(given)


@pytest.fixture(scope="session")
def sanitized_keeper(built: Built) -> Path:
    """The same under sanitizers of memory and arithmetic."""
    try:
        return built("sanitized_keeper", sanitize=True)
    except CannotBuild as error:
        pytest.skip(str(error))
