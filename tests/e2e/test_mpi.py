"""MPI jobs on real nodes: MPICH by the ranker's PMI, Open MPI by PMIx and by its mpirun, without ssh."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.client import Pool
from pool.client.results import Result
from pool.errors import PoolError
from tests.conftest import REPOSITORY
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, asked, client, slots, token, until
from tests.e2e.test_images import able
from tests.mpi.conftest import InstalledMpi, installed
from tests.starter.images import make_image
from tests.starter.test_members import cores_are_files, cores_in

#: A rank that speaks PMI without an MPI library.
RANK = REPOSITORY / "tests" / "mpi" / "rank.py"
HAS_MPI4PY = Path("/usr/lib/python3/dist-packages/mpi4py").exists()
NEEDS = {
    "mpich": "needs MPICH: pip install mpich",
    "openmpi": "needs the Debian packages openmpi-bin and libopenmpi-dev",
}
pytestmark = pytest.mark.own_pool("programs are compiled once, into a directory of the tester's")


@pytest.fixture(scope="module")
def machines(whose_pool: object) -> Iterator[Nodes]:
    """A head, and two machines with one slot each that share its files."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), SLOTS="1", CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(machines: Nodes, request: pytest.FixtureRequest) -> Path:
    return machines.directory(support.directory_name(request))


def mpi_of(family: str, home: Path, *, wheel: bool = False) -> InstalledMpi:
    found = installed(family, home)
    if found is None or (wheel and not found.compiler.startswith(sys.prefix)):
        pytest.skip(NEEDS[family])
    return found


def description(
    program: Path, *arguments: object, count: int = 1, ranks: int = 1, more: str = "", libraries: str = ""
) -> str:
    words = " ".join(map(str, arguments))
    # One kernel under both machines: shared memory would be tried between them.
    variables = "UCX_TLS=posix,tcp,self" if count > 1 or ranks == 1 else "UCX_TLS=posix,self"
    if libraries:
        variables += f" LD_LIBRARY_PATH={libraries}"
    lines = [
        "universe = mpi",
        f"executable = {program}",
        f"arguments = {words}",
        f"machine_count = {count}",
        f"request_cpus = {ranks}",
        f'environment = "{variables} OMPI_MCA_mpi_yield_when_idle=1"',
        "output = out.$(Node)",
        "error = err.$(Node)",
        more,
        "queue",
    ]
    return "\n".join(lines) + "\n"


def errors(home: Path) -> list[str]:
    """The nodes' error files."""
    return [file.read_text() for file in home.glob("err.*")]


def printed(home: Path) -> list[str]:
    return sorted(line for file in home.glob("out.*") for line in file.read_text().splitlines())


def ring(size: int) -> list[str]:
    return [f"rank {r} of {size} sum {size * (size + 1) // 2} token ok check ok" for r in range(size)]


async def ended(pool: Pool, home: Path, text: str) -> Result:
    cluster = await pool.submit(text, iwd=str(home))
    (result,) = await cluster.wait(support.PATIENCE)
    return result


@pytest.mark.parametrize(("count", "ranks"), [(1, 2), (2, 1)])
async def test_ranks_of_mpich_find_each_other(machines: Nodes, home: Path, count: int, ranks: int) -> None:
    program = mpi_of("mpich", home, wheel=count > 1).compiled("ring")
    async with client(machines.all[0]) as pool:
        result = await ended(pool, home, description(program, count=count, ranks=ranks))
        assert result.ok, (result, errors(home))
        assert printed(home) == ring(count * ranks)


@pytest.mark.parametrize(("count", "ranks"), [(1, 2), (2, 1)])
@pytest.mark.parametrize(("way", "family"), [("auto", "pmix"), ("mpirun", "openmpi")])
async def test_ranks_of_open_mpi_find_each_other(
    machines: Nodes, home: Path, count: int, ranks: int, way: str, family: str
) -> None:
    program = mpi_of("openmpi", home).compiled("ring")
    async with client(machines.all[0]) as pool:
        text = description(program, count=count, ranks=ranks, more=f"mpi = {way}")
        cluster = await pool.submit(text, iwd=str(home))
        (ad,) = await cluster.ads()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, (result, errors(home))
        assert printed(home) == ring(count * ranks)
        assert ad.value("MpiFamily") == family


@pytest.mark.parametrize(("count", "ranks"), [(1, 2), (2, 1)])
async def test_ranks_with_a_file_tree_of_their_own(machines: Nodes, home: Path, count: int, ranks: int) -> None:
    """The ranker, its helper and their files are where the job's transferred files are."""
    program = mpi_of("openmpi", home).compiled("ring")
    async with client(machines.all[0]) as pool:
        text = description(program, count=count, ranks=ranks, more="should_transfer_files = YES")
        result = await ended(pool, home, text)
        assert result.ok, (result, errors(home))
        assert printed(home) == ring(count * ranks)
        assert not [name for name in names(home) if name.startswith(".poolnode")]


@pytest.mark.parametrize(("count", "ranks"), [(1, 2), (2, 1)])
async def test_ranks_in_an_image(machines: Nodes, home: Path, count: int, ranks: int) -> None:
    """The image has the program and its MPI, and nothing of the machine.

    MPI's libraries lie in a directory of the image that no machine has: where they are on this machine, a job may see a
    directory of its own (below /tmp).
    """
    program = mpi_of("mpich", home, wheel=True).compiled("ring")
    image = make_image(home / "image")
    shutil.copy(program, image / "ring")
    for path in libraries_of(program):
        inside = image / ("mpi" if path.is_relative_to(sys.prefix) else path.parent.relative_to("/")) / path.name
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, inside)
    async with client(machines.all[0]) as pool:
        await able(pool)
        more = f"container_image = {image}\ntransfer_executable = false\nmpi = mpich"
        result = await ended(
            pool, home, description(Path("/ring"), count=count, ranks=ranks, more=more, libraries="/mpi")
        )
        assert result.ok, (result, errors(home))
        assert printed(home) == ring(count * ranks)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def libraries_of(program: Path) -> list[Path]:
    """The libraries with which a program starts."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(word) for line in text.splitlines() for word in line.split() if word.startswith("/")]


async def test_ranks_of_python(machines: Nodes, home: Path) -> None:
    """Debian's mpi4py, which is Open MPI's: over two nodes, as a script."""
    if not HAS_MPI4PY:
        pytest.skip("needs the Debian package python3-mpi4py")
    program = home / "sum.py"
    program.write_text(
        "#!/usr/bin/python3\nfrom mpi4py import MPI\nall = MPI.COMM_WORLD\n"
        "print('rank', all.rank, 'sum', all.allreduce(all.rank + 1), 'of', all.allgather({'rank': all.rank}))\n"
    )
    program.chmod(0o755)
    async with client(machines.all[0]) as pool:
        result = await ended(pool, home, description(program, count=2))
        assert result.ok, (result, errors(home))
        assert printed(home) == [f"rank {rank} sum 3 of [{{'rank': 0}}, {{'rank': 1}}]" for rank in (0, 1)]


async def test_why_an_open_mpi_job_is_not_saved(machines: Nodes, home: Path) -> None:
    """In the machines' network its ranks and the PMIx server talk by TCP that is not saved."""
    program = mpi_of("openmpi", home).compiled("steps")
    text = description(program, 600, "steps", ranks=2, more="job_network = host")
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        steps = home / "steps"
        await until(lambda: steps.exists() and len(steps.read_text().split()) > 5, "the first steps")

        async def trouble() -> str | None:
            await cluster.checkpoint()
            (ad,) = await cluster.ads()
            return str(ad.value("CheckpointTrouble", "")) or None

        assert "TCP" in await asked(trouble, "the reason")
        await cluster.remove()


@pytest.mark.parametrize(
    ("how", "code", "number", "words"),
    [
        ("exit", 7, None, "rank 1 exited with code 7"),
        ("abort", 42, None, "rank 1 has aborted the job with code 42"),
        ("signal", None, 11, "rank 1 ended by signal 11"),
    ],
)
@pytest.mark.parametrize("family", ["mpich", "openmpi"])
async def test_the_end_of_a_rank_ends_the_job(
    machines: Nodes, home: Path, family: str, how: str, code: int | None, number: int | None, words: str
) -> None:
    """Rank 1 runs on node 1; node 0 waits in a barrier, and is ended with it."""
    program = mpi_of(family, home, wheel=family == "mpich").compiled("ends")
    async with client(machines.all[0]) as pool:
        result = await ended(pool, home, description(program, how, 1, count=2))
        assert (result.exit_code, result.signal) == (code, number), result
        assert words in result.reason, result


async def test_each_of_several_executables_has_its_number(machines: Nodes, home: Path) -> None:
    """MPI_APPNUM, as `mpiexec A : B` gives it."""
    program = mpi_of("mpich", home, wheel=True).compiled("application")
    other = shutil.copy(program, home / "other")
    async with client(machines.all[0]) as pool:
        result = await ended(pool, home, description(program) + f"executable = {other}\nqueue\n")
        assert result.ok, (result, errors(home))
        assert printed(home) == ["rank 0 application 0", "rank 1 application 1"]


@pytest.mark.skipif(not cores_are_files(), reason="kernel.core_pattern names no file in the working directory")
@pytest.mark.parametrize("files", ["", "should_transfer_files = YES"])
async def test_the_core_file_of_a_rank_has_its_numbers(machines: Nodes, home: Path, files: str) -> None:
    program = home / "program"
    program.write_text('#!/bin/sh\n[ "$PMI_RANK" != 1 ] || kill -SEGV $$\nexec sleep 600\n')
    program.chmod(0o755)
    async with client(machines.all[0]) as pool:
        more = f"mpi = mpich\ncore_size = {1 << 30}\n{files}"
        result = await ended(pool, home, description(program, ranks=2, more=more))
        assert result.signal == 11, (result, errors(home))
        assert cores_in(home) == [home / "core.0.1"]


async def test_ranks_that_do_not_find_each_other_are_held_in_words(machines: Nodes, home: Path) -> None:
    async with client(machines.all[0]) as pool:
        text = description(Path("/bin/true"), ranks=2, more="mpi = mpich")
        cluster = await pool.submit(text, iwd=str(home))

        async def held() -> str | None:
            (ad,) = await cluster.ads()
            return str(ad.value("HoldReason")) if ad.value("JobStatus") == 5 else None

        reason = await support.asked(held, "the job to be held")
        assert "its 2 ranks ended without a call of MPI_Init" in reason
        assert "ran 2 times alone" in reason


async def test_inspect_says_whom_ranks_wait_for(machines: Nodes, home: Path) -> None:
    program = home / "program"
    program.write_text(
        f'#!/bin/sh\n[ "$PMI_RANK" != 1 ] || exec sleep 600\nexec {sys.executable} -IS {RANK} ends 0 9\n'
    )
    program.chmod(0o755)
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(description(program, ranks=2, more="mpi = mpich"), iwd=str(home))
        said: list[str] = []

        async def waits() -> bool:
            try:
                said[:] = (await pool.inspect((cluster.ids[0][0], 0), 0.0)).lines()
            except PoolError:
                return False  # it does not run yet
            return "  rank 0 waits for rank 1, which has not called MPI_Init" in said

        await asked(waits, "the words about rank 0")
        why = str(await pool.why((cluster.ids[0][0], 0)))
        assert "rank 0 waits for rank 1, which has not called MPI_Init" in why
        await cluster.remove()


@pytest.mark.parametrize("family", ["mpich", "openmpi"])
@pytest.mark.parametrize("how", ["removed", "killed"])
async def test_nothing_is_left_of_ranks_in_mpi_init(machines: Nodes, home: Path, family: str, how: str) -> None:
    """One rank waits in MPI_Init; the other ignores SIGTERM, and has a child that does, too. The job is removed, or a
    ranker is killed at once."""
    program = home / "program"
    ring = mpi_of(family, home, wheel=family == "mpich").compiled("ring")
    program.write_text(f'#!/bin/sh\n[ "$PMI_RANK" = 0 ] && exec {ring}\ntrap "" TERM\nsleep 600 &\nexec sleep 600\n')
    program.chmod(0o755)
    mark = f"MARK={home.name}"
    more, before = f"mpi = {family}\njob_max_vacate_time = 1", set(shared_memory())
    text = description(program, count=2, more=more).replace('environment = "', f'environment = "{mark} ')
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))

        async def waits() -> bool:
            try:
                said = (await pool.inspect((cluster.ids[0][0], 0), 0.0)).lines()
            except PoolError:
                return False
            return {"  rank 0 waits for ranks on other machines", "  rank 1 has not called MPI_Init"} <= set(said)

        await asked(waits, "rank 0 to be in MPI_Init")
        ours = marked(mark)
        assert len(ours) >= 5, ours
        if how == "removed":
            await cluster.remove()
        else:
            (ranker, *_) = [pid for pid, name in ours.items() if name.startswith(".poolnode.ranke")]
            os.kill(ranker, signal.SIGKILL)
        await cluster.wait(support.PATIENCE)
        await until(lambda: not marked(mark), "the last of its processes to end")
        await until(lambda: before.issuperset(shared_memory()), "the ranks' shared memory to be removed")


def shared_memory() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob("poolnode-pmix-*")]


def marked(mark: str) -> dict[int, str]:
    """The processes that have a variable in their environment, with their names."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found[int(place.name)] = (place / "comm").read_text().strip()
    return found


async def test_an_mpi_job_goes_on_from_its_checkpoint(machines: Nodes, home: Path) -> None:
    """Two ranks and their ranker are saved with the shared memory between them, and go on: each step once (E8)."""
    program = mpi_of("mpich", home, wheel=True).compiled("steps")
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(description(program, 60, "steps", ranks=2), iwd=str(home))
        steps = home / "steps"

        await until(lambda: steps.exists() and len(steps.read_text().split()) > 5, "the first steps")
        await cluster.vacate()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, (result, errors(home))
        assert steps.read_text().split() == [str(step) for step in range(60)]
