"""Parts of one job on machines of two pools that connect directly: each machine and head in a network of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.flocks import agree
from tests.e2e.support import HEAD, Node, Nodes, asked, client, poolnode, program, slots, token, until
from tests.network.two_networks import HEADS, MACHINES, TwoNetworks
from tests.starter.support import PYTHON

HEAD_ROLES = f"{HEAD},world"
#: The line in a machine's log when it has a direct connection.
CONNECTED = "parts of a job in two pools are connected directly"
#: Each number goes to the other part and back over one connection, or by two pipes, and is written down once.
COUNT = """
import sys, time
def count(send, receive, path):
    with open(path, "a", buffering=1) as out:
        number = 0
        while True:
            send(b"%d\\n" % number)
            assert int(receive()) == number
            print(number, file=out)
            number += 1
            time.sleep(0.005)
"""
BY_NETWORK = f"""{COUNT}
import socket
if sys.argv[1] == "0":
    peer, _ = socket.create_server(("", 7000)).accept()
    while data := peer.recv(100):
        peer.sendall(data)
else:
    while True:
        try:
            peer = socket.create_connection(("rank0", 7000))
            break
        except OSError:
            time.sleep(0.05)
    count(peer.sendall, peer.makefile("rb").readline, sys.argv[2])
"""
#: A pipe job's writer says numbers, with a block of bytes beside each; its reader writes them down.
SAYS = """
import sys, time
number = 0
while True:
    sys.stdout.write("%d %s\\n" % (number, "x" * 20000))
    sys.stdout.flush()
    number += 1
    time.sleep(0.005)
"""
HEARS = """
import sys
with open(sys.argv[1], "a", buffering=1) as out:
    for line in sys.stdin:
        number, block = line.split()
        assert len(block) == 20000
        print(number, file=out)
"""


@pytest.fixture(scope="module")
def networks(whose_pool: object) -> Iterator[TwoNetworks]:
    made = TwoNetworks()
    yield made
    made.close()


class TwoPools:
    """Two pools, chem of which lends to physics; jobs' files of their own tell what passes.

    Attributes:
        heads, machines: by pool.
    """

    def __init__(self, nodes: Nodes, networks: TwoNetworks) -> None:
        self.nodes, self.networks = nodes, networks
        self.heads: dict[str, Node] = {}
        self.machines: dict[str, Node] = {}
        self.files = nodes.directory("agreements")

    def agreement(self, pool: str, direct: str) -> Path:
        """The file of a pool."""
        path = self.files / f"{pool}.toml"
        other = "chem" if pool == "physics" else "physics"
        path.write_text(f"[{other}]\n" + (f'direct = ["{direct}"]\n' if direct else ""))
        return path

    def start_head(self, pool: str, direct: str = "10.97.0.0/16") -> Node:
        number = HEADS[pool == "chem"]
        self.heads[pool] = self.nodes.start(
            pool,
            HEAD_ROLES,
            machine=self.networks.inside(number),
            LISTEN=f"{self.networks.address(number)}:{9700 + number}",
            FILESYSTEM_DOMAIN=pool,
            CHECKPOINT_WORTH="0",
            FLOCK_FILE=str(self.agreement(pool, direct)),
        ).ready()
        return self.heads[pool]

    async def start(self) -> None:
        for pool, number in zip(("physics", "chem"), MACHINES, strict=True):
            joins = await token(self.start_head(pool), "startd")
            self.machines[pool] = self.nodes.start(
                f"{pool}-m",
                "startd",
                join=joins,
                machine=self.networks.inside(number),
                LISTEN=f"{self.networks.address(number)}:0",
                SLOTS="1",
                FILESYSTEM_DOMAIN=pool,
                CHECKPOINT_WORTH="0",
            ).ready()
        await agree(self.heads["chem"], self.heads["physics"], ("chem", "physics"))
        async with client(self.heads["physics"]) as user:
            await slots(user, 2)

    def by_network(self, home: Path) -> str:
        """A job of two nodes, one in chem, with a network of its own, that counts."""
        (home / "count.py").write_text(BY_NETWORK)
        return f"""
        universe = parallel
        executable = {program(home, f"exec {PYTHON} count.py $1 numbers")}
        transfer_input_files = count.py
        should_transfer_files = YES
        arguments = $(Node)
        error = err.$(Node)
        job_network = private
        +ParallelShutdownPolicy = "WAIT_FOR_ALL"
        machine_count = 1
        requirements = FlockPool =?= "chem"
        queue
        requirements = FlockPool =?= undefined
        queue
        """

    def by_pipe(self, home: Path) -> str:
        """A pipe job whose writer is in chem."""
        (home / "says.py").write_text(SAYS)
        (home / "hears.py").write_text(HEARS)
        return f"""
        executable = w={PYTHON} says.py | r={PYTHON} hears.py numbers
        transfer_input_files = says.py, hears.py
        should_transfer_files = YES
        w.requirements = FlockPool =?= "chem"
        r.requirements = FlockPool =?= undefined
        queue
        """

    def job(self, kind: str, home: Path) -> str:
        return self.by_network(home) if kind == "network" else self.by_pipe(home)

    @property
    def numbers(self) -> list[str]:
        """The numbers that have come back at home so far, from the scratch directory of the part there."""
        execute = self.machines["physics"].state / "execute"
        with contextlib.suppress(OSError):  # one ends just now
            for path in execute.rglob("numbers"):
                return path.read_text().split()
        return []

    async def more(self, count: int = 50) -> None:
        """Wait until so many more numbers have come, each once and in order."""
        before = len(self.numbers)
        await until(lambda: len(self.numbers) >= before + count, "numbers to go on")
        numbers = self.numbers[:-1]  # the last one may be half a number
        assert numbers == [*map(str, range(len(numbers)))]

    async def ways(self, cluster: int) -> str:
        """The answer of `inspect` about a job, with its ways."""
        at = ("-A", self.heads["physics"].address)
        said = await asyncio.to_thread(poolnode, "inspect", str(cluster), *at)
        return str(said.stdout + said.stderr)

    async def goes(self, cluster: int, *words: str) -> None:
        """Wait until `inspect` says so of the job's ways."""

        async def told() -> bool:
            said = await self.ways(cluster)
            return any(word in said for word in words)

        await asked(told, f"inspect to say {words}")


DIRECTLY = ("is direct", "go directly")
BY_WORLDS = ("goes by the pools' worlds", "go by the pools' worlds")


@pytest.fixture(scope="module")
def pools(networks: TwoNetworks) -> Iterator[TwoPools]:
    made: list[TwoPools] = []

    async def start(nodes: Nodes) -> None:
        made.append(TwoPools(nodes, networks))
        await made[0].start()

    with support.running(start):
        yield made[0]


@pytest.fixture
def home(pools: TwoPools, request: pytest.FixtureRequest) -> Path:
    return pools.nodes.directory(support.directory_name(request))


@pytest.mark.parametrize("kind", ["network", "pipe"])
async def test_both_heads_are_killed_and_bytes_pass_without_them(pools: TwoPools, home: Path, kind: str) -> None:
    """Nothing of a direct connection goes through a head, a world or the schedd: while they are dead it goes on."""
    async with client(pools.heads["physics"]) as pool:
        cluster = (await pool.submit(pools.job(kind, home), iwd=str(home))).cluster
        await pools.goes(cluster, *DIRECTLY)
        await pools.more()
    for head in pools.heads.values():
        head.crash()
    await pools.more(200)
    for name in ("chem", "physics"):
        pools.start_head(name)
    await pools.more()
    async with client(pools.heads["physics"]) as pool:
        (ad,) = await pool.cluster(cluster).ads()
        assert (ad.value("JobStatus"), ad.value("NumJobStarts")) == (2, 1)
        await pool.cluster(cluster).remove()


async def test_a_jobs_files_go_directly_while_the_lenders_head_is_dead(pools: TwoPools, home: Path) -> None:
    """The job writes to its owner's file at home; the lender's world is not on that way."""
    (home / "counts.py").write_text(f"{COUNT}\nsaid = []\ncount(said.append, said.pop, 'counted')\n")
    wish = {"executable": program(home, f"exec {PYTHON} counts.py"), "remote_io": "on"}
    wish |= {"requirements": 'FlockPool =?= "chem"', "error": "err"}

    def counted() -> list[str]:
        path = home / "counted"
        return path.read_text().split()[:-1] if path.exists() else []

    async def counts(more: int) -> None:
        before = len(counted())
        await until(lambda: len(counted()) >= before + more, "the job to write")

    async with client(pools.heads["physics"]) as pool:
        mark = len(pools.machines["chem"].log)
        cluster = await pool.submit(wish, iwd=str(home))
        pools.machines["chem"].said("a job's schedd is connected directly", after=mark)
        await counts(50)
        await pools.goes(cluster.cluster, "files go to the job's pool directly")
        pools.heads["chem"].crash()
        await counts(200)
        pools.start_head("chem")
        await counts(50)
        (ad,) = await cluster.ads()
        assert (ad.value("JobStatus"), ad.value("NumJobStarts")) == (2, 1)
        await cluster.remove()
    assert counted() == [*map(str, range(len(counted())))]


@pytest.mark.parametrize("kind", ["network", "pipe"])
async def test_a_way_that_falls_silent_is_replaced_by_the_worlds(pools: TwoPools, home: Path, kind: str) -> None:
    async with client(pools.heads["physics"]) as pool:
        cluster = await pool.submit(pools.job(kind, home), iwd=str(home))
        await pools.goes(cluster.cluster, *DIRECTLY)
        await pools.more()
        pools.networks.cut()
        try:
            await pools.goes(cluster.cluster, *BY_WORLDS)
            await pools.more()
        finally:
            pools.networks.heal()
        await cluster.remove()


@pytest.mark.parametrize("kind", ["network", "pipe"])
async def test_machines_that_do_not_reach_each_other_need_not_wait(pools: TwoPools, home: Path, kind: str) -> None:
    """Packets vanish from the beginning: the job's bytes pass before anybody has found out."""
    pools.networks.cut()
    try:
        async with client(pools.heads["physics"]) as pool:
            cluster = await pool.submit(pools.job(kind, home), iwd=str(home))
            await pools.more()
            await pools.goes(cluster.cluster, *BY_WORLDS)
            await cluster.remove()
    finally:
        pools.networks.heal()


@pytest.mark.parametrize("kind", ["network", "pipe"])
async def test_a_checkpoint_moves_the_job_and_its_direct_connection(pools: TwoPools, home: Path, kind: str) -> None:
    async with client(pools.heads["physics"]) as pool:
        cluster = await pool.submit(pools.job(kind, home), iwd=str(home))
        for starts in (1, 2):

            async def runs(starts: int = starts) -> bool:
                (ad,) = await cluster.ads()
                return (ad.value("NumJobStarts", 0), ad.value("JobStatus")) == (starts, 2)

            await asked(runs, "the run")
            await pools.goes(cluster.cluster, *DIRECTLY)
            await pools.more()
            if starts == 1:
                await cluster.vacate()
        (ad,) = await cluster.ads()
        assert ad.value("NumCkpts") == 1
        await cluster.remove()


@pytest.mark.parametrize("kind", ["network", "pipe"])
@pytest.mark.parametrize("side", ["physics", "chem"])
async def test_consent_that_is_withdrawn_ends_direct_connections(
    pools: TwoPools, home: Path, kind: str, side: str
) -> None:
    """By either administrator, with SIGHUP: the job runs on, by the worlds."""
    async with client(pools.heads["physics"]) as pool:
        cluster = await pool.submit(pools.job(kind, home), iwd=str(home))
        await pools.goes(cluster.cluster, *DIRECTLY)
        pools.agreement(side, "")
        pools.heads[side].signal(signal.SIGHUP)
        try:
            await pools.goes(cluster.cluster, *BY_WORLDS)

            async def none_left() -> bool:
                said = await pools.ways(cluster.cluster)
                return not any(word in said for word in DIRECTLY)

            await asked(none_left, "neither end to have a direct connection")
            await pools.more()
        finally:
            pools.agreement(side, "10.97.0.0/16")
            mark = len(pools.heads[side].log)
            pools.heads[side].signal(signal.SIGHUP)
            pools.heads[side].said("configuration read again", after=mark)
        await cluster.remove()
