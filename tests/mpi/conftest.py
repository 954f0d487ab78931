"""The ranker, built from these sources, and each MPI that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pool.checkpoint.build import PMIX_SOURCES, RANKER_SOURCES, CannotBuild
from tests.conftest import Built

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class InstalledMpi:
    """An MPI of this machine.

    Attributes:
        family: as `pool.jobs.mpi` names it.
        compiler: its mpicc. starter: its mpiexec.
        place: where the programs of the tests are compiled to.
    """

    family: str
    compiler: str
    starter: str
    place: Path

    def compiled(self, name: str) -> Path:
        """A program of `programs/`, linked with this MPI."""
        target = self.place / f"{name}.{self.family}"
        if not target.exists():
            command = [
                self.compiler,
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-o",
                str(target),
                str(PROGRAMS / f"{name}.c"),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        return target


@pytest.fixture(scope="session")
def ranker(built: Built) -> Path:
    """The ranker of these sources."""
    return built("ranker", sources=RANKER_SOURCES)


@pytest.fixture(scope="session")
def sanitized_ranker(built: Built) -> Path:
    """The same under sanitizers of memory and arithmetic."""
    try:
        return built("sanitized_ranker", sanitize=True, sources=RANKER_SOURCES)
    except CannotBuild as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pmix_server(built: Built) -> Path:
    """The helper for PMIx, under sanitizers."""
    try:
        return built("sanitized_pmix_server", sanitize=True, sources=PMIX_SOURCES)
    except CannotBuild as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pmix_headers() -> list[str]:
    """The compiler's options for programs that use PMIx; the test skips where there is none."""
    done = subprocess.run(["pkg-config", "--cflags", "--libs", "pmix"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("needs the Debian packages libpmix-dev and pkg-config")
    return done.stdout.split()


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The findings of sanitizers go to files; there must be none."""
    log = tmp_path / "sanitizer"
    monkeypatch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={log}")
    monkeypatch.setenv("UBSAN_OPTIONS", f"print_stacktrace=1:log_path={log}")
    yield
    assert [path.read_text() for path in tmp_path.glob("sanitizer*")] == []


def installed(family: str, place: Path) -> InstalledMpi | None:
    """The wheel's beside this Python first: Debian 12's MPICH cannot run between machines (docs/mpi.md)."""
    beside = Path(sys.executable).with_name("mpicc")
    pairs = [(str(beside), str(beside.with_name("mpiexec")))] if family == "mpich" else []
    pairs.append((f"mpicc.{family}", f"mpiexec.{family}"))
    for compiler, starter in pairs:
        found = shutil.which(compiler)
        if found is not None and shutil.which(starter) is not None:
            return InstalledMpi(family, found, str(shutil.which(starter)), place)
    return None


@pytest.fixture(scope="session")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> InstalledMpi:
    """An MPICH; the test skips where there is none."""
    found = installed("mpich", tmp_path_factory.mktemp("mpich"))
    if found is None:
        pytest.skip("needs MPICH: pip install mpich, or the Debian package mpich")
    return found


@pytest.fixture(scope="session")
def openmpi(tmp_path_factory: pytest.TempPathFactory) -> InstalledMpi:
    """An Open MPI; the test skips where there is none."""
    found = installed("openmpi", tmp_path_factory.mktemp("openmpi"))
    if found is None:
        pytest.skip("needs the Debian packages openmpi-bin and libopenmpi-dev")
    return found


@pytest.fixture
def few_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that outnumber the processors give way to each other; parts on one machine talk as parts on two do."""
    monkeypatch.setenv("UCX_TLS", "posix,tcp,self")
    monkeypatch.setenv("OMPI_MCA_mpi_yield_when_idle", "1")
    if os.geteuid() == 0:
        for name in ("OMPI", "PRTE"):
            monkeypatch.setenv(f"{name}_ALLOW_RUN_AS_ROOT", "1")
            monkeypatch.setenv(f"{name}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
