"""Real programs, unmodified, each moved twenty times to another machine at arbitrary moments: every one leaves what it
leaves undisturbed, byte for byte (C1, C3).
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from pool.checkpoint.build import compiler
from pool.starter.keeper import NativeKeeper
from tests.checkpoint.machines import Machine, Work, needs, travel, waiting
from tests.starter.support import family

PYTHON = "/usr/bin/python3"
#: Numbers of x86-64.
READ, FUTEX, SLEEP, GO_ON = 0, 202, 230, 219


async def test_plain_python(elsewhere: list[Machine]) -> None:
    await travel(elsewhere, Work((PYTHON, "montecarlo.py"), ("montecarlo.py",), appends=True), 1)


async def test_linear_algebra_in_threads(elsewhere: list[Machine]) -> None:
    pytest.importorskip("numpy", reason="needs numpy, of the package's extra 'test'")
    # A thread that finds nothing to do sleeps soon, and does not take the processor from the other.
    env = {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_THREAD_TIMEOUT": "4"}
    await travel(elsewhere, Work((sys.executable, "algebra.py"), ("algebra.py",), env=env, appends=True), 2)


async def test_scikit_learn(around: list[Machine]) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn, of the package's extra 'test'")
    env = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    await travel(around, Work((sys.executable, "fit.py"), ("fit.py",), env=env, appends=True), 3)


async def test_threads_with_vector_registers_and_timers(elsewhere: list[Machine]) -> None:
    compiling = (*compiler().split(), "-O2", "-pthread", "-o", "simd", "simd.c")
    await travel(elsewhere, Work(("./simd",), ("simd.c",), commands=(compiling,), appends=True), 4)


async def test_fortran(elsewhere: list[Machine]) -> None:
    needs("gfortran", "gfortran")
    compiling = ("gfortran", "-O1", "-o", "records", "records.f90")
    await travel(elsewhere, Work(("./records",), ("records.f90",), commands=(compiling,)), 5)


async def test_r(around: list[Machine]) -> None:
    needs("Rscript", "r-base-core")
    await travel(around, Work(("Rscript", "--vanilla", "anneal.R"), ("anneal.R",), appends=True), 6)


async def test_java(elsewhere: list[Machine]) -> None:
    needs("javac", "default-jdk-headless")
    command = ("java", "-Xmx64m", "-cp", ".", "Work")
    await travel(elsewhere, Work(command, ("Work.java",), commands=(("javac", "Work.java"),), appends=True), 7)


async def test_node_js(elsewhere: list[Machine]) -> None:
    needs("node", "nodejs")
    await travel(elsewhere, Work(("node", "work.js"), ("work.js",), appends=True), 8)


async def test_a_file_that_is_followed(elsewhere: list[Machine]) -> None:
    await travel(elsewhere, Work(("/bin/sh", "follow.sh"), ("follow.sh",), appends=True), 14)


async def test_luajit(elsewhere: list[Machine]) -> None:
    needs("luajit", "luajit")
    await travel(elsewhere, Work(("luajit", "work.lua"), ("work.lua",), appends=True), 9)


async def test_a_pipeline(elsewhere: list[Machine]) -> None:
    await travel(elsewhere, Work(("/bin/sh", "pipeline.sh"), ("pipeline.sh",)), 10)


async def test_processes_of_python(around: list[Machine]) -> None:
    await travel(around, Work((PYTHON, "workers.py"), ("workers.py",), appends=True), 11)


async def test_sqlite(around: list[Machine]) -> None:
    needs("sqlite3", "sqlite3")
    # It goes by the inode number of its file, and writes no more when that has changed.
    work = Work(("/bin/sh", "database.sh"), ("database.sh",), shared=True)

    def size(scratch: Path) -> int:
        data = scratch / "data.db"
        return data.stat().st_size if data.exists() else 0

    await travel(around, work, 12, progress=size)


async def test_a_compile(elsewhere: list[Machine]) -> None:
    needs("make", "make")

    def objects(scratch: Path) -> int:
        return len(list(scratch.glob("project/build/*.o")))

    # All is compiled, also where the machine's gcc is ccache, whose cache a job cannot write.
    work = Work(("make", "-s", "-j2", "-C", "project"), ("project",), env={"CCACHE_DISABLE": "1"})
    await travel(elsewhere, work, 13, progress=objects)


@pytest.mark.parametrize("kind", ["sleep", "until"])
async def test_a_long_sleep(around: list[Machine], kind: str) -> None:
    def wake(keeper: NativeKeeper, scratch: Path) -> None:
        family(keeper.pid)[1].send_signal(signal.SIGUSR1)

    await waiting(around, waits(kind), {SLEEP, GO_ON}, wake)


async def test_a_read_of_a_pipe(around: list[Machine]) -> None:
    await waiting(around, waits("read"), {READ}, lambda _, scratch: (scratch / "go").touch())


async def test_a_wait_for_a_futex(around: list[Machine]) -> None:
    await waiting(around, waits("futex"), {FUTEX}, lambda _, scratch: (scratch / "go").touch())


def waits(kind: str) -> Work:
    compiling = (*compiler().split(), "-O1", "-pthread", "-o", "waits", "waits.c")
    return Work(("./waits", kind), ("waits.c",), commands=(compiling,))
