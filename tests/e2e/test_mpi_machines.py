"""MPI jobs on three machines with a network of their own each, over the machines' own addresses: no lo, no port and no
shared memory is common to two of them (issue 13).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.inside import lacking
from tests.chaos.network import Network, Port
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, slots, token
from tests.e2e.test_mpi import description, ended, errors, mpi_of, printed, ring

pytestmark = [
    pytest.mark.own_pool("programs are compiled once, into a directory of the tester's"),
    pytest.mark.skipif(bool(lacking()), reason=f"needs {lacking()}"),
]

#: /sys shows the devices of the network in which it was mounted; libraries look for theirs there.
OWN_DEVICES = ("unshare", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "machine")


@pytest.fixture(scope="module")
def apart(whose_pool: object) -> Iterator[Nodes]:
    """A head and two machines with one slot each; each has a network namespace and an address, and files in common."""
    ports = [Port(name, number) for number, name in enumerate(("head", "one", "two"), 1)]
    network = Network(ports, 0)

    async def start(nodes: Nodes) -> None:
        places = {
            port.name: {
                "machine": ["nsenter", f"--net=/proc/{os.getpid()}/fd/{port.namespace}", *OWN_DEVICES],
                "LISTEN": f"{port.address}:0",
            }
            for port in ports
        }
        head = nodes.start("head", HEAD, **places["head"]).ready()  # type: ignore[arg-type]
        for name in ("one", "two"):
            join = await token(head, "startd")
            nodes.start(name, "startd", join=join, SLOTS="1", CHECKPOINT_WORTH="0", **places[name]).ready()  # type: ignore[arg-type]
        async with client(head) as pool:
            await slots(pool, 2)

    try:
        with support.running(start) as nodes:
            yield nodes
    finally:
        network.close()


@pytest.mark.parametrize(
    ("family", "way"), [("mpich", "auto"), ("openmpi", "auto"), ("openmpi", "mpirun")], ids=["mpich", "pmix", "mpirun"]
)
async def test_ranks_find_each_other(apart: Nodes, request: pytest.FixtureRequest, family: str, way: str) -> None:
    home: Path = apart.directory(support.directory_name(request))
    program = mpi_of(family, home, wheel=family == "mpich").compiled("ring")
    async with client(apart.all[0]) as pool:
        result = await ended(pool, home, description(program, count=2, more=f"mpi = {way}"))
        assert result.ok, (result, errors(home))
        assert printed(home) == ring(2)
        assert len({process["host"] for process in result.processes}) == 2
