"""The check of skips that `.ci/run` makes: what is not on the list fails, whichever way it was skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips
from tests.conftest import REPOSITORY

TESTS = """
import pytest

@pytest.mark.skipif(True, reason="needs a mark")
def test_marked() -> None: ...

@pytest.fixture
def lacking() -> None:
    pytest.skip("needs a fixture")

def test_of_a_fixture(lacking: None) -> None: ...

def test_in_its_course() -> None:
    pytest.skip("needs its course")

def test_that_runs() -> None: ...
"""


def outcome(directory: Path, **environ: str) -> tuple[int, str]:
    """The status and the output of a run as the suite's own, in several processes. Its temporary directory is its own:
    a pytest that begins closes the one of all runs to other users.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "tests.skips", "-p", "no:cacheprovider"]
    command += ["--basetemp", str(directory / "base")]
    clean = {name: value for name, value in os.environ.items() if name != skips.CHECK}
    done = subprocess.run(
        [*command, "--rootdir", str(directory), str(directory)],
        env={**clean, **environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_skip_that_is_not_listed_fails_where_it_is_checked(tmp_path: Path) -> None:
    (tmp_path / "test_ways.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('nobody.has.this')\n")
    status, said = outcome(tmp_path)
    assert (status, "1 passed, 4 skipped" in said) == (0, True), said
    status, said = outcome(tmp_path, **{skips.CHECK: "1"})
    assert status != 0, said
    assert set(re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.M)) == {
        "test_module.py",
        *(f"test_ways.py::test_{name}" for name in ("marked", "of_a_fixture", "in_its_course")),
    }
    for reason in ("needs a mark", "needs a fixture", "needs its course", "nobody.has.this"):
        assert reason in said


def test_test_and_reason_both_have_to_be_listed() -> None:
    listed = (skips.Skip(r"^tests/a\.py::", r"needs the package \w+", "nowhere"),)
    assert skips.is_listed("tests/a.py::test_it", "needs the package x", listed)
    assert not skips.is_listed("tests/b.py::test_it", "needs the package x", listed)
    assert not skips.is_listed("tests/a.py::test_it", "needs the package x and root", listed)


@pytest.mark.parametrize("skip", skips.LISTED, ids=lambda skip: skip.reason)
def test_a_row_is_about_tests_that_there_are(skip: skips.Skip) -> None:
    paths = [str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert any(re.search(skip.tests, f"{path}::test_it[notification]") for path in paths)
    assert skip.where


def test_the_run_of_the_suite_checks() -> None:
    assert f"export {skips.CHECK}=1" in (REPOSITORY / ".ci" / "run").read_text()
