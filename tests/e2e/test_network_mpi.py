"""Unmodified MPI programs over a job's own network: what they print is what they print over the host's."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, slots, token
from tests.e2e.test_mpi import description, ended, errors, mpi_of, printed

pytestmark = pytest.mark.own_pool("programs are compiled once, into a directory of the tester's")


@pytest.fixture(scope="module")
def machines(whose_pool: object) -> Iterator[Nodes]:
    """A head, and three machines that share its files."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two", "three"):
            nodes.start(name, "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(machines: Nodes, request: pytest.FixtureRequest) -> Path:
    return machines.directory(support.directory_name(request))


def run(command: list[str], variables: dict[str, str]) -> str:
    env = {**os.environ, **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("family", "parts"), [("mpich", 2), ("mpich", 4), ("openmpi", 2), ("openmpi", 3)])
async def test_kernels_print_the_same_over_a_network_of_their_own(
    machines: Nodes, home: Path, family: str, parts: int
) -> None:
    """A ring, allreduces and a stencil over three machines; Open MPI has one daemon on each (issue 14, 1)."""
    mpi = mpi_of(family, home, wheel=family == "mpich")
    program = mpi.compiled("kernels")
    # TCP only: parts on one machine would else try memory that parts in different networks do not share
    apart = "requirements = TARGET.SlotID == 1" if family == "openmpi" else ""
    more = f"job_network = private\n{apart}"
    text = description(program, 10, 5000, count=parts, more=more).replace("posix,tcp", "tcp")
    async with client(machines.all[0]) as pool:
        result = await ended(pool, home, text)
    assert result.ok, (result, errors(home))
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "UCX_TLS": "tcp,self"}
    command = [mpi.starter, *(["--oversubscribe"] if family == "openmpi" else []), "-n", str(parts), str(program)]
    peer = await asyncio.to_thread(run, [*command, "10", "5000"], variables)
    assert printed(home) == sorted(peer.splitlines())
    assert len(printed(home)) == parts + 1
