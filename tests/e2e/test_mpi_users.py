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


#: A rank that replaces its ranker's status, for as long as it runs, and writes nonsense to the ranker at the end.
HOSTILE = r"""#!/bin/sh
status=$(tr '\0' '\n' < /proc/$PPID/cmdline | grep -A1 -x -e --status | tail -1)
replace() {
    rm -rf "$status"
    case $1 in
    link) ln -s /etc/shadow "$status" ;;
    fifo) mkfifo "$status" ;;
    directory) mkdir "$status" ;;
    huge) head -c 20000000 /dev/zero > "$status" ;;
    esac
}
replace $1
ls -ld "$status" > "$2/found"; mv "$2/found" "$2/ready"
until [ -e "$2/go" ]; do replace $1; sleep 0.02; done
eval "head -c 100000 /dev/urandom >&$PMI_FD"
kill -9 $PPID
sleep 600
"""


@pytest.mark.parametrize("how", ["link", "fifo", "directory", "huge"])
async def test_a_hostile_user_gets_nothing_from_root_and_holds_nothing_up(
    machines: Nodes, tmp_path: Path, how: str
) -> None:
    """The node reads the ranker's status, which lies where the job's user may write."""
    home = machines.directory(f"home-{how}")
    program = home / "program"
    program.write_text(HOSTILE)
    program.chmod(0o755)
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(description(program, how, home, more="mpi = mpich"), iwd=str(home))
        await until((home / "ready").exists, "the rank to run")
        found = (home / "ready").read_text()
        assert found[0] == {"link": "l", "fifo": "p", "directory": "d", "huge": "-"}[how], found
        assert ".poolnode.ranks" in found
        for _ in range(5):
            said = "\n".join((await pool.inspect((cluster.ids[0][0], 0), 0.0)).lines())
            assert "root:" not in said
            assert "/etc/shadow" not in said
        (home / "go").touch()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert not result.ok
        again = mpi_of("mpich", home).compiled("ring")
        assert (await ended(pool, home, description(again, ranks=1))).ok, errors(home)
