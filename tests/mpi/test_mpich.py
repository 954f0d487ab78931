"""MPICH under the ranker: real programs, on one part and on several."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pool.jobs.mpi import family_of
from tests.mpi.conftest import InstalledMpi
from tests.mpi.parts import Parts

pytestmark = pytest.mark.usefixtures("few_processors")


@pytest.mark.parametrize("kinds", [[(2, 1)], [(1, 2)], [(2, 2)], [(1, 1), (2, 1)]])
def test_ring(sanitized_ranker: Path, tmp_path: Path, mpich: InstalledMpi, kinds: Sequence[tuple[int, int]]) -> None:
    size = sum(ranks * parts for ranks, parts in kinds)
    with Parts(sanitized_ranker, tmp_path, kinds, [mpich.compiled("ring")]) as parts:
        assert parts.codes() == [0] * parts.count, [parts.err(part) for part in range(parts.count)]
        total = size * (size + 1) // 2
        assert parts.printed() == [f"rank {r} of {size} sum {total} token ok check ok" for r in range(size)]


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("signal", -signal.SIGSEGV, "rank 1 ended by signal 11"),
        ("exit", 7, "rank 1 exited with code 7"),
        ("unfinished", 1, "rank 1 exited with code 0 without MPI_Finalize"),
        ("abort", 42, "rank 1 has aborted the job with code 42"),
    ],
)
def test_ends(ranker: Path, tmp_path: Path, mpich: InstalledMpi, how: str, code: int, words: str) -> None:
    """MPICH of the other rank may crash at once. Where its ranker sees that before it sees the cause, the job's end is
    one that both have seen, and rank 1's part names rank 1's always."""
    with Parts(ranker, tmp_path, [(1, 2)], [mpich.compiled("ends"), how, 1]) as parts:
        first, second = parts.codes()
        assert first == second
        assert first == code or (first == -signal.SIGSEGV and "rank 0 ended by signal 11" in parts.err(0))
        assert words in parts.err(1)


def test_spawn_is_refused_and_the_job_goes_on(ranker: Path, tmp_path: Path, mpich: InstalledMpi) -> None:
    with Parts(ranker, tmp_path, [(2, 1)], [mpich.compiled("ends"), "spawn", 1]) as parts:
        assert parts.codes() == [0]
        assert parts.printed() == ["spawn refused"]
        assert "rank 1 calls MPI_Comm_spawn: refused" in parts.err()


def test_two_jobs_at_once_keep_apart(ranker: Path, tmp_path: Path, mpich: InstalledMpi) -> None:
    """Each start has a name of its own: MPICH names its shared memory after it."""
    places = [tmp_path / name for name in "ab"]
    for place in places:
        place.mkdir()
    with (
        Parts(ranker, places[0], [(2, 1)], [mpich.compiled("ring"), 20]) as first,
        Parts(ranker, places[1], [(2, 1)], [mpich.compiled("ring"), 20]) as second,
    ):
        assert first.codes() + second.codes() == [0, 0], first.err() + second.err()


def test_its_family_is_seen(mpich: InstalledMpi) -> None:
    assert family_of(str(mpich.compiled("ring")), lambda path: Path(path).read_bytes(), lambda _: []) == "mpich"


def test_a_real_client_of_the_second_protocol(sanitized_ranker: Path, tmp_path: Path) -> None:
    """Slurm's library of PMI-2 has a client of its own, not MPICH's."""
    library = "/usr/lib/x86_64-linux-gnu/libpmi2.so.0"
    if not Path(library).exists():
        pytest.skip("needs the Debian package libpmi2-0")
    program = tmp_path / "pmi2"
    source = Path(__file__).parent / "programs" / "pmi2.c"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source), library]
    subprocess.run(command, check=True)
    with Parts(sanitized_ranker, tmp_path, [(2, 3)], [program]) as parts:
        assert parts.codes() == [0] * 3, [parts.err(part) for part in range(3)]
        assert parts.printed() == [f"rank {r} of 6 has 6 values, of its node {r // 2 * 2}" for r in range(6)]
