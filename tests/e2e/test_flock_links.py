"""Parts of one job on machines of three pools that reach each other: pipes, packets, MPI ranks, ports (WR 6.4).

Real nodes, joined by tokens. physics is the home of all jobs, and lends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pool.client.forwarding import forward_port
from tests.e2e import support
from tests.e2e.flocks import BOTH, agree, lines_of
from tests.e2e.support import HEAD, Nodes, asked, client, poolnode, program, slots, token, until
from tests.e2e.test_mpi import description, errors, libraries_of, mpi_of, printed, ring
from tests.e2e.test_spread import GEN, SINK, expected
from tests.starter.support import PYTHON

APART = 'a.requirements = FlockPool =?= undefined\nb.requirements = FlockPool =?= "chem"\n'
THREE = APART + 'c.requirements = FlockPool =?= "bio"\n'


@pytest.fixture(scope="module")
def flock3(whose_pool: object) -> Iterator[Nodes]:
    """Three pools with two slots each; chem and bio lend to physics, and know nothing of each other."""

    async def start(nodes: Nodes) -> None:
        physics = nodes.start("physics", BOTH, SLOTS="2", CHECKPOINT_WORTH="0").ready()
        for name in ("chem", "bio"):
            pool = nodes.start(name, BOTH, SLOTS="2", FILESYSTEM_DOMAIN=name, CHECKPOINT_WORTH="0").ready()
            await agree(pool, physics, (name, "physics"))
        async with client(physics) as home:
            await slots(home, 3)

    with support.running(start) as nodes:
        yield nodes


def in_all_pools(compiled: Path) -> str:
    """Six ranks of an MPI program, which has its libraries with it."""
    libraries = [str(path) for path in libraries_of(compiled) if path.is_relative_to(sys.prefix)]
    more = f"""
    job_network = private
    should_transfer_files = YES
    transfer_input_files = {", ".join(libraries)}
    """
    return description(compiled, count=6, more=more, libraries=".").replace("posix,tcp", "tcp")


@pytest.fixture
def home(flock3: Nodes, request: pytest.FixtureRequest) -> Path:
    return flock3.directory(support.directory_name(request))


async def test_bytes_pass_by_pipes_through_three_pools(flock3: Nodes, home: Path) -> None:
    text = f"executable = a=/usr/bin/seq 1 300000 | b=/bin/cat | c=/usr/bin/md5sum > sum\n{THREE}queue\n"
    async with client(flock3.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(support.PATIENCE)
        assert result.ok, result
    sent = "".join(f"{number}\n" for number in range(1, 300_001)).encode()
    assert (home / "sum").read_text().split()[0] == hashlib.md5(sent).hexdigest()


async def test_a_pipe_to_another_pool_ends_as_any_pipe_does(flock3: Nodes, home: Path) -> None:
    """A reader in another pool that has had enough; and a writer there."""
    for number, (writer, reader) in enumerate((("a", "b"), ("b", "a"))):
        (own := home / str(number)).mkdir()
        text = f"executable = {writer}=/usr/bin/yes | {reader}=/usr/bin/head > out\n{APART}queue\n"
        async with client(flock3.all[0]) as pool:
            (result,) = await (await pool.submit(text, iwd=str(own))).wait(support.PATIENCE)
        assert result.ok, result
        assert [(end["code"], end["signal"]) for end in result.processes] == [(None, 13), (0, None)]
        assert (own / "out").read_text() == "y\n" * 10


async def test_a_pipe_job_in_three_pools_goes_on_from_its_checkpoint(flock3: Nodes, home: Path) -> None:
    """Megabytes are on their way when it is made. No process begins anew; nothing is lost, nothing comes twice."""
    for name, text in (("gen.py", GEN), ("sink.py", SINK)):
        (home / name).write_text(text)
    text = f"""
    executable = a={PYTHON} {home}/gen.py {home} | b=/usr/bin/tr 1 a | c=/bin/cat | d={PYTHON} {home}/sink.py {home}
    d.output = out
    d.requirements = FlockPool =?= undefined
    {THREE.replace(chr(10), chr(10) + "    ")}
    log = log
    queue
    """
    async with client(flock3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until((home / "megabytes").exists, "megabytes to flow")
        said = await asyncio.to_thread(poolnode, "vacate", str(cluster.cluster), "-A", flock3.all[0].address)
        assert said.returncode == 0, said.stdout + said.stderr
        await until(lambda: "was checkpointed" in (home / "log").read_text(), "all parts to leave, saved")
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        (ad,) = await cluster.ads()
    lines, digest = (home / "out").read_text().split()
    assert int(lines) > 0
    assert digest == expected(int(lines))
    assert [(home / f"began.{name}").read_text() for name in ("gen", "sink")] == ["x", "x"]
    assert (ad.value("NumJobStarts"), ad.value("NumCkpts")) == (2, 1)


@pytest.mark.own_pool("programs are compiled once, into a directory of the tester's")
async def test_ranks_of_one_mpi_program_in_three_pools(flock3: Nodes, home: Path) -> None:
    text = in_all_pools(mpi_of("mpich", home, wheel=True).compiled("ring"))
    async with client(flock3.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(support.PATIENCE)
        assert result.ok, (result, errors(home))
    assert printed(home) == ring(6)
    pools = sorted(str(end["host"]).partition("@")[2] for end in result.processes)
    assert pools == ["bio@bio@physics"] * 2 + ["chem@chem@physics"] * 2 + ["physics"] * 2


@pytest.mark.own_pool("programs are compiled once, into a directory of the tester's")
async def test_ranks_that_would_not_reach_each_other_stay_at_home(flock3: Nodes, home: Path) -> None:
    compiled = mpi_of("mpich", home, wheel=True).compiled("ring")
    text = description(compiled, count=3, more="should_transfer_files = YES")
    async with client(flock3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))

        async def told() -> bool:
            said = await asyncio.to_thread(poolnode, "why", f"{cluster.cluster}.0", "-A", flock3.all[0].address)
            return "job_network = private lets it go there" in said.stdout

        await asked(told, "the reason")
        await cluster.remove()


async def test_a_port_and_a_shell_of_a_job_in_another_pool_are_brought_to_its_owner(flock3: Nodes, home: Path) -> None:
    (home / "page").write_text("hello from another pool\n")
    text = f"""
    executable = {program(home, f"exec {PYTHON} -m http.server 80 --bind 127.0.0.1")}
    transfer_input_files = page
    should_transfer_files = yes
    job_network = private
    requirements = FlockPool =?= "chem"
    queue
    """
    async with client(flock3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            work = forward_port(pool, (cluster.cluster, 0), 80, listener, node=0, failed=lambda why: None)
            forwarding = asyncio.ensure_future(work)

            async def page() -> bytes:
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection(*listener.getsockname())
                    writer.write(b"GET /page HTTP/1.0\r\n\r\n")
                    answer = await reader.read()
                    writer.close()
                    return answer.partition(b"\r\n\r\n")[2]
                return b""

            assert await support.asked(page, "the job's server answers") == b"hello from another pool\n"
            forwarding.cancel()
        said = await asyncio.to_thread(
            poolnode, "ssh", str(cluster.cluster), "-A", flock3.all[0].address, "--", "cat page; exit 3"
        )
        assert (said.returncode, said.stdout) == (3, "hello from another pool\n"), said.stderr
        await cluster.remove()


#: Node 0 serves, node 1 counts: each number goes there and back over one connection, and is printed once.
COUNTING = """
import socket, sys, time
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
    with peer, peer.makefile("rb") as back:
        number = 0
        while True:
            peer.sendall(b"%d\\n" % number)
            assert int(back.readline()) == number
            print(number, flush=True)
            number += 1
            time.sleep(0.01)
"""


def counting(home: Path) -> str:
    """A job of two nodes: one in chem, which serves, and one at home, which counts."""
    (home / "count.py").write_text(COUNTING)
    return f"""
    universe = parallel
    executable = {program(home, f"exec {PYTHON} count.py $1")}
    transfer_input_files = count.py
    arguments = $(Node)
    output = out.$(Node)
    error = err.$(Node)
    stream_output = true
    job_network = private
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    machine_count = 1
    requirements = FlockPool =?= "chem"
    queue
    requirements = FlockPool =?= undefined
    queue
    """


async def test_a_connection_between_two_pools_moves_with_its_ends(flock3: Nodes, home: Path) -> None:
    """Each number goes there and back once, over one connection, though both ends are saved and begin again."""
    async with client(flock3.all[0]) as pool:
        cluster = await pool.submit(counting(home), iwd=str(home))
        await until(partial(_has, home / "out.1", 100), "a hundred numbers to come back")
        for starts in (2, 3):
            await cluster.vacate()

            async def runs_again(starts: int = starts) -> bool:
                (ad,) = await cluster.ads()
                return (ad.value("NumJobStarts", 0), ad.value("NumCkpts"), ad.value("JobStatus")) == (
                    *(starts, starts - 1),
                    2,
                )

            await asked(runs_again, "the next run")
            await until(partial(_has, home / "out.1", len(lines_of(home / "out.1")) + 20), "numbers to go on")
        await cluster.remove()
    numbers = lines_of(home / "out.1")
    assert numbers == [*map(str, range(len(numbers)))], (home / "err.1").read_text()


@pytest.fixture
def apart(whose_pool: object) -> Iterator[Nodes]:
    """Two pools, each with a head and a machine of one slot beside it."""

    async def start(nodes: Nodes) -> None:
        heads = {}
        for name in ("physics", "chem"):
            heads[name] = nodes.start(name, f"{HEAD},world", FILESYSTEM_DOMAIN=name).ready()
            joining = await token(heads[name], "startd")
            nodes.start(f"{name}-m", "startd", join=joining, SLOTS="1", FILESYSTEM_DOMAIN=name).ready()
        await agree(heads["chem"], heads["physics"], ("chem", "physics"))
        async with client(heads["physics"]) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


async def test_connections_outlive_the_worlds_that_carry_them(apart: Nodes) -> None:
    """Each pool's head is killed, and comes back: the job runs on, and its one connection goes on."""
    nodes = apart
    home = nodes.directory("home")
    text = counting(home)
    async with client(nodes.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until(lambda: "100" in lines_of(home / "out.1"), "a hundred numbers to come back")
    for name, roles in (("chem", f"{HEAD},world"), ("physics", f"{HEAD},world")):
        node = next(one for one in nodes.all if one.state.name == f"{name}.state")
        node.crash()
        again = nodes.start(name, roles, FILESYSTEM_DOMAIN=name).ready()
        before = len(lines_of(home / "out.1"))
        await until(partial(_has, home / "out.1", before + 100), "numbers to go on")
    async with client(again) as pool:
        (ad,) = await pool.cluster(cluster.cluster).ads()
        assert (ad.value("JobStatus"), ad.value("NumJobStarts")) == (2, 1)
        await pool.cluster(cluster.cluster).remove()
    numbers = lines_of(home / "out.1")
    assert numbers == [*map(str, range(len(numbers)))], (home / "err.1").read_text()


def _has(path: Path, count: int) -> bool:
    """Whether so many lines are there."""
    return len(lines_of(path)) > count
