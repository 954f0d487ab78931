"""PMIx by the ranker and its helper: Open MPI's programs, and clients without MPI, on one part and on several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mpi.conftest import PROGRAMS, InstalledMpi
from tests.mpi.parts import LIMIT, Parts

pytestmark = pytest.mark.usefixtures("few_processors")


@pytest.fixture
def client(tmp_path: Path, pmix_headers: list[str]) -> Path:
    program = tmp_path / "client"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(PROGRAMS / "pmix.c"), *pmix_headers]
    subprocess.run(command, check=True)
    return program


def left(parts: Parts) -> list[str]:
    """The directories of helpers that have not been removed."""
    return [path.name for path in parts.place.glob(".poolnode.pmix.*")]


def helpers_of(parts: Parts, pmix_server: Path) -> list[str]:
    """The helpers of the first part's ranker, by their process ids."""
    ranker = parts.processes[0].pid
    children = Path(f"/proc/{ranker}/task/{ranker}/children").read_text().split()
    return [pid for pid in children if os.path.realpath(f"/proc/{pid}/exe") == str(pmix_server)]


def running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("kinds", [[(2, 1)], [(1, 2)], [(2, 2)], [(1, 1), (2, 1)]])
def test_ring(
    sanitized_ranker: Path,
    pmix_server: Path,
    tmp_path: Path,
    openmpi: InstalledMpi,
    kinds: Sequence[tuple[int, int]],
) -> None:
    size = sum(ranks * parts for ranks, parts in kinds)
    program = openmpi.compiled("ring")
    with Parts(sanitized_ranker, tmp_path, kinds, [program], more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0] * parts.count, [parts.err(part) for part in range(parts.count)]
        total = size * (size + 1) // 2
        assert parts.printed() == [f"rank {r} of {size} sum {total} token ok check ok" for r in range(size)]
    assert left(parts) == []


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("signal", -signal.SIGSEGV, "rank 1 ended by signal 11"),
        ("exit", 7, "rank 1 exited with code 7"),
        ("unfinished", 1, "rank 1 exited with code 0 without MPI_Finalize"),
        ("abort", 42, "rank 1 has aborted the job with code 42"),
    ],
)
def test_ends(
    ranker: Path, pmix_server: Path, tmp_path: Path, openmpi: InstalledMpi, how: str, code: int, words: str
) -> None:
    program = openmpi.compiled("ends")
    with Parts(ranker, tmp_path, [(1, 2)], [program, how, 1], more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [code, code]
        assert words in parts.err(1)
        for part in (0, 1):
            status = parts.status(part)
            assert status is not None
            assert words in status.end
    assert left(parts) == []


def test_spawn_is_refused_and_the_job_goes_on(
    ranker: Path, pmix_server: Path, tmp_path: Path, openmpi: InstalledMpi
) -> None:
    command = [openmpi.compiled("ends"), "spawn", 1]
    with Parts(ranker, tmp_path, [(2, 1)], command, more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0]
        assert parts.printed() == ["spawn refused"]
        assert "rank 1 calls MPI_Comm_spawn: refused" in parts.err()


def test_ranks_know_which_program_of_the_job_they_are(
    ranker: Path, pmix_server: Path, tmp_path: Path, openmpi: InstalledMpi
) -> None:
    program = openmpi.compiled("application")
    with Parts(ranker, tmp_path, [(1, 1), (2, 1)], [program], more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0, 0], parts.err() + parts.err(1)
        assert parts.printed() == ["rank 0 application 0", "rank 1 application 1", "rank 2 application 1"]


def test_the_status_says_whom_ranks_wait_for(
    ranker: Path, pmix_server: Path, tmp_path: Path, openmpi: InstalledMpi
) -> None:
    """A rank that has called MPI_Init is in its first fence until all have."""
    command = ["sh", "-c", f"[ $PMI_RANK = 1 ] && exec sleep 600; exec {openmpi.compiled('ring')}"]
    with Parts(ranker, tmp_path, [(3, 1)], command, more=["--pmix", pmix_server]) as parts:
        limit = time.monotonic() + LIMIT
        while (status := parts.status()) is None or status.states != "b.b":
            assert time.monotonic() < limit, (status, parts.err())
            os.sched_yield()
        assert status.waits_for() == "ranks 0, 2 wait for rank 1, which has not called MPI_Init"


def test_ranks_that_never_speak_are_singletons(ranker: Path, pmix_server: Path, tmp_path: Path) -> None:
    command = ["printenv", "OMPI_MCA_btl_vader_backing_directory"]
    with Parts(ranker, tmp_path, [(2, 2)], command, more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0, 0], parts.err()
        assert all((status := parts.status(part)) is not None and status.singletons for part in (0, 1))
    assert left(parts) == []
    shared = parts.printed()
    assert (len(shared), len(set(shared))) == (4, 2), "each part has its own"
    assert not any(Path(path).exists() for path in shared)


def test_other_users_do_not_see_the_secret(ranker: Path, pmix_server: Path, tmp_path: Path) -> None:
    """The namespace has it. Command lines and the names in /dev/shm are for all to read."""
    with Parts(ranker, tmp_path, [(1, 1)], ["sleep", "600"], more=["--pmix", pmix_server]) as parts:
        limit = time.monotonic() + LIMIT
        while not (helpers := helpers_of(parts, pmix_server)):
            assert time.monotonic() < limit, parts.err()
            os.sched_yield()
        seen = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (parts.processes[0].pid, *helpers)]
        assert not any(parts.name in text for text in (*seen, *os.listdir("/dev/shm")))


@pytest.mark.parametrize("family", ["pmi", "pmix"])
def test_no_rank_outlives_its_ranker(ranker: Path, pmix_server: Path, tmp_path: Path, family: str) -> None:
    more = ["--pmix", pmix_server] if family == "pmix" else []
    with Parts(ranker, tmp_path, [(2, 1)], ["sh", "-c", "echo $$; exec sleep 600"], more=more) as parts:
        limit = time.monotonic() + LIMIT
        while len(pids := parts.printed()) < 2 or not all(pids):
            assert time.monotonic() < limit, parts.err()
            os.sched_yield()
        helpers = helpers_of(parts, pmix_server)
        parts.processes[0].kill()
        while alive := [pid for pid in (*pids, *helpers) if running(pid)]:
            assert time.monotonic() < limit, alive
            os.sched_yield()


def test_each_rank_has_a_session(ranker: Path, tmp_path: Path) -> None:
    """A busy machine's time is divided among sessions first; mpiexec does the same."""
    command = ["sh", "-c", "ps -o pid=,sid= -p $$"]
    with Parts(ranker, tmp_path, [(2, 1)], command) as parts:
        assert parts.codes() == [0], parts.err()
        assert all(pid == session for pid, session in map(str.split, parts.printed()))


def test_fences_of_a_tree_of_parts(sanitized_ranker: Path, pmix_server: Path, tmp_path: Path, client: Path) -> None:
    """Twenty parts are a tree of three floors. Each rank gives more than one message between rankers holds."""
    kinds = [(1, 18), (2, 2)]
    with Parts(sanitized_ranker, tmp_path, kinds, [client, 100_000, 2], more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0] * 20, [parts.err(part) for part in range(20)]
        assert parts.printed() == sorted(f"rank {rank} of 22" for rank in range(22))
    assert left(parts) == []


def test_megabytes_in_a_fence(sanitized_ranker: Path, pmix_server: Path, tmp_path: Path, client: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(1, 2)], [client, 8 << 20], more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0, 0], parts.err() + parts.err(1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--pmix-library", "/nowhere/libpmix.so.2"], "there is no PMIx library here (/nowhere/libpmix.so.2: cannot"),
        (["--pmix-library", "libc.so.6"], "this machine's PMIx library has no PMIx_Get_version: it is too old"),
        (["--pmix", "/nowhere/pmix_server"], "cannot be started: it needs the C library that it was built with"),
        (["--pmix", "/bin/true"], "the PMIx server of part 0 cannot be started"),
        (["--pmix", "/bin/false"], "the PMIx server of part 0 cannot be started"),
    ],
)
def test_a_machine_without_pmix(
    ranker: Path, pmix_server: Path, tmp_path: Path, more: Sequence[object], words: str
) -> None:
    with Parts(ranker, tmp_path, [(1, 1)], ["true"], more=["--pmix", pmix_server, *more]) as parts:
        assert parts.codes() == [1]
        assert words in parts.err()


@pytest.mark.parametrize(
    "bytes_", [r"\377\377\377\377q", r"\0\0\0\0q", r"\1\0\0\0q", r"\5\0\0\0c\377\0\0\0", r"\1\0\0\0b\1\0\0\0b"]
)
def test_a_server_that_breaks_the_rules(sanitized_ranker: Path, tmp_path: Path, bytes_: str) -> None:
    """It is a process of the job's user, who may replace it."""
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\nprintf '\\1\\0\\0\\0r{bytes_}' >&3\nexec sleep 600 3>&3\n")
    server.chmod(0o755)
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], ["sleep", "600"], more=["--pmix", server]) as parts:
        assert parts.codes() == [1, 1]
        assert "sent what is no message" in parts.err(0) + parts.err(1)


def test_a_server_that_is_killed_ends_the_job(ranker: Path, pmix_server: Path, tmp_path: Path, client: Path) -> None:
    command = ["sh", "-c", f"[ $PMI_RANK = 1 ] || {client}; exec sleep 600"]
    with Parts(ranker, tmp_path, [(2, 1)], command, more=["--pmix", pmix_server]) as parts:
        limit = time.monotonic() + LIMIT
        while (status := parts.status()) is None or status.states != "b.":
            assert time.monotonic() < limit, (status, parts.err())
            os.sched_yield()
        (helper,) = helpers_of(parts, pmix_server)
        os.kill(int(helper), signal.SIGKILL)
        assert parts.codes() == [1]
        assert "the PMIx server of part 0 has ended" in parts.err()


#: Sends what it is told to the port of PMIx's server, in several connections, and becomes a client.
GARBAGE = """
import os, re, socket, sys
port = int(re.search(r"tcp4?://127.0.0.1:(\\d+)", os.environ["PMIX_SERVER_URI4"])[1])
for size in (1, 7, 100, 70000):
    with socket.create_connection(("127.0.0.1", port)) as link:
        try:
            link.sendall(bytes(size) if sys.argv[1] == "zero" else os.urandom(size))
        except OSError:
            pass
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize("what", ["zero", "random"])
def test_garbage_at_the_servers_port(
    sanitized_ranker: Path, pmix_server: Path, tmp_path: Path, client: Path, what: str
) -> None:
    command = [sys.executable, "-IS", "-c", GARBAGE, what, client]
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], command, more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0, 0], parts.err() + parts.err(1)


def test_a_rank_of_another_number_is_no_client(ranker: Path, pmix_server: Path, tmp_path: Path, client: Path) -> None:
    command = ["env", "PMIX_RANK=77", client]
    with Parts(ranker, tmp_path, [(1, 1)], command, more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [3], parts.err()
        assert "init: " in parts.err()


def test_many_fences(sanitized_ranker: Path, pmix_server: Path, tmp_path: Path, client: Path) -> None:
    """Each adds a key; the library gives all keys of a rank again each time."""
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], [client, 10, 100], more=["--pmix", pmix_server]) as parts:
        assert parts.codes() == [0, 0], parts.err() + parts.err(1)


@pytest.mark.parametrize(("said", "code"), [(r"\5\0\0\0z\0\0\0\0", 0), ("", 1)])
def test_a_rank_that_ends_before_the_server_says_that_it_has_finalized(
    sanitized_ranker: Path, tmp_path: Path, said: str, code: int
) -> None:
    """On a busy machine: the library waits two seconds for its server, and then the rank exits."""
    server, pid = tmp_path / "server", tmp_path / "pid"
    gone = f"until [ -s {pid} ] && ! [ -e /proc/$(cat {pid}) ]; do :; done"
    server.write_text(
        f"#!/bin/sh\nprintf '\\1\\0\\0\\0r\\5\\0\\0\\0c\\0\\0\\0\\0' >&3\n{gone}\nprintf '{said}' >&3\ncat <&3\n"
    )
    server.chmod(0o755)
    with Parts(
        sanitized_ranker, tmp_path, [(1, 1)], ["sh", "-c", f"echo $$ > {pid}"], more=["--pmix", server]
    ) as parts:
        assert parts.codes() == [code], parts.err()
        assert ("rank 0 exited with code 0 without MPI_Finalize" in parts.err()) == bool(code)


def test_its_interface_is_that_of_the_headers(tmp_path: Path, pmix_headers: list[str]) -> None:
    command = ["gcc", "-Wall", "-o", str(tmp_path / "abi"), str(PROGRAMS / "pmix_abi.c"), *pmix_headers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
