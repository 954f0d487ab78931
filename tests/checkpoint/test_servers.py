"""Servers with their clients, unmodified, as one job with a network of its own: each moved twenty times to another
machine at arbitrary moments, with its connections. Every one leaves what it leaves undisturbed, byte for byte (E8, C2).

Those of many processes or much memory are moved six times here: `TESTS_ALL_MOVES=1` moves them twenty times, too.
`.ci/run` does not install Go and PyTorch, which are too large: their tests run where somebody has them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.checkpoint.machines import FEW_MOVES, Machine, Work, needs, travel

PYTHON = "/usr/bin/python3"


def needs_module(name: str, package: str) -> None:
    found = subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"needs the Debian package {package}")


def needs_postgresql() -> None:
    if not list(Path("/usr/lib/postgresql").glob("*/bin/pgbench")):
        pytest.skip("needs the Debian package postgresql")


async def test_a_web_server_and_its_clients(elsewhere: list[Machine]) -> None:
    await travel(elsewhere, Work((PYTHON, "web.py"), ("web.py",), appends=True, private=True), 15)


async def test_servers_of_asyncio(elsewhere: list[Machine]) -> None:
    await travel(elsewhere, Work((PYTHON, "streams.py"), ("streams.py",), appends=True, private=True), 16)


@pytest.mark.parametrize(
    ("kind", "program", "package"),
    [("redis", "redis-server", "redis-server"), ("nginx", "/usr/sbin/nginx", "nginx-light")],
)
async def test_a_server_and_its_clients(around: list[Machine], kind: str, program: str, package: str) -> None:
    needs(program, package)
    if kind == "nginx":
        needs("curl", "curl")
    work = Work((PYTHON, "server_driver.py", kind, "40"), ("server_driver.py",), private=True)
    await travel(around, work, 17)


async def test_http_server_and_requests(around: list[Machine]) -> None:
    needs_module("requests", "python3-requests")
    await travel(around, Work((PYTHON, "server_driver.py", "requests", "80"), ("server_driver.py",), private=True), 24)


async def test_a_server_of_java(around: list[Machine]) -> None:
    needs("javac", "default-jdk-headless")
    command = ("java", "-Xmx64m", "-cp", ".", "Talk")
    work = Work(command, ("Talk.java",), commands=(("javac", "Talk.java"),), appends=True, private=True)
    await travel(around, work, 18)


async def test_a_server_of_go(elsewhere: list[Machine]) -> None:
    needs("go", "golang-go")
    # With another $CC than Debian's, as the tests have it, Go compiles half of its library anew.
    building = ("env", "-u", "CC", "GO111MODULE=off", "go", "build", "-o", "serve", "serve.go")
    work = Work(("./serve", "150"), ("serve.go",), commands=(building,), appends=True, private=True)
    await travel(elsewhere, work, 19)


async def test_postgresql_and_pgbench(around: list[Machine]) -> None:
    needs_postgresql()
    # Its directory has a thousand files, and on a file server, as here, nobody copies them.
    command = (PYTHON, "database_server.py", str(2 * FEW_MOVES))
    work = Work(command, ("database_server.py",), private=True, ordinary=True, shared=True)
    await travel(around, work, 20, moves=FEW_MOVES)


async def test_a_notebook_in_jupyter(around: list[Machine]) -> None:
    needs_module("ipykernel", "python3-ipykernel")
    needs_module("nbclient", "python3-nbclient")
    env = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    work = Work((PYTHON, "notebook.py", str(3 * FEW_MOVES)), ("notebook.py",), env=env, appends=True, private=True)
    await travel(around, work, 21, moves=FEW_MOVES)


async def test_dask(around: list[Machine]) -> None:
    needs_module("distributed", "python3-distributed")
    work = Work((PYTHON, "cluster.py", str(3 * FEW_MOVES)), ("cluster.py",), private=True)
    await travel(around, work, 22, moves=FEW_MOVES)


async def test_ranks_of_pytorch(around: list[Machine]) -> None:
    needs_module("torch", "python3-torch")
    work = Work((PYTHON, "ranks.py", str(4 * FEW_MOVES)), ("ranks.py",), private=True)
    await travel(around, work, 23, moves=FEW_MOVES)
