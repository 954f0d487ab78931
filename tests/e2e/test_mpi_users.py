"""MPI programs of an ordinary user on root's nodes: under PMIx, over the host's network and one of the job's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, slots, token, until
from tests.e2e.test_mpi import description, ended, errors, mpi_of, printed, ring, shared_memory


@pytest.fixture(scope="module")
def machines(whose_pool: object) -> Iterator[Nodes]:
    """A head, and three machines with one slot each that share its files."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two", "three"):
            nodes.start(name, "startd", join=await token(head, "startd"), SLOTS="1").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.mark.parametrize("network", ["host", "private"])
async def test_ranks_on_three_machines(machines: Nodes, tmp_path: Path, network: str) -> None:
    """With a network of the job's own each part is in a namespace of its own."""
    home = machines.directory(f"home-{network}")
    program = mpi_of("openmpi", home).compiled("ring")
    before = set(shared_memory())
    text = description(program, count=3, more=f"mpi = pmix\njob_network = {network}")
    async with client(machines.all[0]) as pool:
        result = await ended(pool, home, text.replace("posix,tcp", "tcp"))
    assert result.ok, (result, errors(home))
    assert printed(home) == ring(3)
    await until(lambda: before.issuperset(shared_memory()), "the ranks' shared memory to be removed")
