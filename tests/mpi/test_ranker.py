"""The ranker as a program: ranks that speak PMI by themselves, in one part and in many; some break its rules."""

from __future__ import annotations

import fcntl
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.mpi.parts import LIMIT, Parts
from tests.starter.test_members import cores_are_files

#: Seconds for which the kernel lets a lease stand, less than /proc/sys/fs/lease-break-time (45).
LEASE = 30.0
RANK = Path(__file__).with_name("rank.py")


def rank(*words: object) -> list[object]:
    """The command of a rank of `rank.py`."""
    return [sys.executable, "-IS", RANK, *words]


def test_ranks_of_one_part_exchange_keys(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(3, 1)], rank("exchange", 4)) as parts:
        assert parts.codes() == [0], parts.err()
        assert parts.printed() == [f"{r} of 3 (vector,(0,1,3)) local {r} of 3" for r in range(3)]


def test_ranks_of_a_tree_of_parts_exchange_keys(sanitized_ranker: Path, tmp_path: Path) -> None:
    """Twenty parts are a tree of three floors: sixteen hang below the first, and the rest below them."""
    with Parts(sanitized_ranker, tmp_path, [(1, 18), (2, 2)], rank("exchange", 2)) as parts:
        assert parts.codes() == [0] * 20, [parts.err(part) for part in range(20)]
        assert len(parts.printed()) == 22
        assert all("(vector,(0,18,1),(18,2,2))" in line for line in parts.printed())
        assert "21 of 22 (vector,(0,18,1),(18,2,2)) local 1 of 2" in parts.printed()


def test_the_second_protocol(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], rank("exchange2")) as parts:
        assert parts.codes() == [0, 0], parts.err() + parts.err(1)
        ports = {0: 0, 1: 0, 2: 2, 3: 2}
        assert parts.printed() == [f"{r} (vector,(0,2,2)) port of {ports[r]}" for r in range(4)]
        assert parts.err().count("MPI_Comm_spawn: refused") == 1


@pytest.mark.parametrize("protocol", ["number", "number2"])
def test_ranks_know_which_program_of_the_job_they_are(sanitized_ranker: Path, tmp_path: Path, protocol: str) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 1), (1, 2)], rank(protocol)) as parts:
        assert parts.codes() == [0, 0, 0], parts.err()
        assert parts.printed() == ["0 is of 0", "1 is of 0", "2 is of 1", "3 is of 1"]


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("3", 3, "rank 2 exited with code 3"),
        ("0", 1, "rank 2 exited with code 0 without MPI_Finalize"),
        ("signal", -signal.SIGSEGV, r"rank 2 ended by signal 11 \(Segmentation fault\)"),
        ("abort42", 42, "rank 2 has aborted the job with code 42: a bad day"),
        ("abort0", 0, "rank 2 has aborted the job with code 0: a bad day"),
        ("abort256", 1, "rank 2 has aborted the job with code 256: a bad day"),
    ],
)
def test_the_end_of_one_rank_ends_all(sanitized_ranker: Path, tmp_path: Path, how: str, code: int, words: str) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], rank("ends", how, 2)) as parts:
        assert parts.codes() == [code, code]
        assert re.search(words, parts.err(1)), parts.err(1)
        assert not parts.err(0)
        for part in (0, 1):
            status = parts.status(part)
            assert status is not None
            assert re.search(words, status.end)


def test_a_rank_that_ends_without_mpi_while_others_wait(sanitized_ranker: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", f"[ $PMI_RANK = 1 ] || exec {sys.executable} -IS {RANK} ends 0 9"]
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], command) as parts:
        assert parts.codes() == [1, 1]
        assert "rank 1 has ended without MPI_Init, which rank 0 has called" in parts.err(0) + parts.err(1) or (
            "rank 0 waits for rank 1, which has ended without MPI_Init" in parts.err(0)
        )


def test_a_part_that_ends_without_mpi_while_others_wait(sanitized_ranker: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", f"[ $PMI_RANK -ge 2 ] || exec {sys.executable} -IS {RANK} ends 0 9"]
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], command) as parts:
        assert parts.codes() == [1, 0]
        assert "another part of the job have ended without MPI_Init" in parts.err(0)


def test_ranks_that_never_speak_are_singletons(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], rank("silent")) as parts:
        assert parts.codes() == [0, 0]
        assert all((status := parts.status(part)) is not None and status.singletons for part in (0, 1))


def test_the_status_says_whom_ranks_wait_for(ranker: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", f"[ $PMI_RANK = 1 ] && exec sleep 600; exec {sys.executable} -IS {RANK} ends 0 9"]
    with Parts(ranker, tmp_path, [(3, 1)], command) as parts:
        limit = time.monotonic() + LIMIT
        while (status := parts.status()) is None or status.states != "b.b":
            assert time.monotonic() < limit, status
            os.sched_yield()
        assert status.waits_for() == "ranks 0, 2 wait for rank 1, which has not called MPI_Init"


def test_spawn_is_refused_by_name(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 1)], rank("spawn")) as parts:
        assert parts.codes() == [0]
        said = "calls MPI_Comm_spawn: refused, a job of this pool starts with all its ranks"
        assert parts.err().count(said) == 1


def test_what_a_rank_has(ranker: Path, tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two processors")
    count = str(len(cpus))
    given = {"POOLNODE_MPI_CPUS": count, "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c,GPU-d"}
    with Parts(ranker, tmp_path, [(2, 1)], rank("look"), stdin=b"to rank 0", **given) as parts:
        assert parts.codes() == [0]
        first, second = parts.printed()
    half = len(cpus) // 2
    shares = [",".join(map(str, share)) for share in (cpus[:half], cpus[half : 2 * half])]
    assert first == f"0 cpus {shares[0]} gpus GPU-a,GPU-b fds [] told [] stdin 'to rank 0'"
    assert second == f"1 cpus {shares[1]} gpus GPU-c,GPU-d fds [] told [] stdin ''"


def test_ranks_share_gpus_where_there_are_fewer(ranker: Path, tmp_path: Path) -> None:
    with Parts(ranker, tmp_path, [(4, 1)], rank("look"), CUDA_VISIBLE_DEVICES="0,1", POOLNODE_MPI_CPUS="999") as parts:
        assert parts.codes() == [0]
        assert [re.findall(r"gpus (\S+)", line)[0] for line in parts.printed()] == ["0", "0", "1", "1"]
        assert len({line.split()[2] for line in parts.printed()}) == 1, "bound though the processors are not its own"


def test_signals_go_on_to_the_ranks(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 1)], rank("waits_for_signal")) as parts:
        limit = time.monotonic() + LIMIT
        while len(parts.printed()) < 2:
            assert time.monotonic() < limit
            os.sched_yield()
        parts.processes[0].terminate()
        assert parts.codes() == [9]


def test_a_program_that_cannot_be_started(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 2)], ["/no/such"]) as parts:
        assert parts.codes() == [127, 127]
        assert "cannot start rank 0: /no/such: No such file or directory" in parts.err()


@pytest.mark.skipif(not cores_are_files(), reason="kernel.core_pattern names no file in the working directory")
@pytest.mark.parametrize(("ranks", "names"), [(1, ["core.0"]), (2, ["core.0.0", "core.0.1"])])
def test_each_rank_that_crashes_has_a_core_of_its_own(
    ranker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, names: list[str]
) -> None:
    """Of ranks that crash at one moment the kernel may leave one core: it is whole, and has its own rank's name."""
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        with Parts(ranker, tmp_path, [(ranks, 1)], rank("crash")) as parts:
            assert parts.codes() == [-signal.SIGSEGV], parts.err()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    found = sorted(path.name for path in tmp_path.glob("core*"))
    assert found
    assert set(found) <= set(names), found
    for name in found:
        with (tmp_path / name).open("rb") as core:
            assert core.read(4) == b"\x7fELF"
            assert f"rank of {name.rpartition('.')[2]} ".encode() in core.read()


def test_no_rank_waits_for_the_start_of_another(ranker: Path, tmp_path: Path) -> None:
    """A lease on the program holds each rank in its exec: all are forked by then.

    The file is open for reading only: of one that can be written, the lease ends a moment before it may be executed.
    """
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(program, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with Parts(ranker, tmp_path, [(5, 1)], [program]) as parts:
            pid = parts.processes[0].pid
            children = Path(f"/proc/{pid}/task/{pid}/children")
            limit = time.monotonic() + LEASE
            while len(children.read_text().split()) < 5:
                assert time.monotonic() < limit, "the second rank is forked only when the first runs"
                os.sched_yield()
            os.close(fd)
            fd = -1
            assert parts.codes() == [0], parts.err()
    finally:
        if fd >= 0:
            os.close(fd)
        signal.signal(signal.SIGIO, before)


def test_a_start_that_is_refused_is_in_the_status(sanitized_ranker: Path, tmp_path: Path) -> None:
    with Parts(sanitized_ranker, tmp_path, [(3, 1)], [tmp_path]) as parts:
        assert parts.codes() == [126]
        assert f"cannot start rank 0: {tmp_path}: Permission denied" in parts.err()
        status = parts.status()
        assert status is not None
        assert status.states == 3 * "X"
        assert "cannot start rank 0" in status.end


INIT = r"cmd=init pmi_version=1 pmi_subversion=1\n"
INIT2 = r"cmd=init pmi_version=2 pmi_subversion=0\n"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([r"cmd=get_maxes\n"], "its first request is not init"),
        ([r"cmd=init\n"], "no version in its first request"),
        ([INIT, INIT], "a second init"),
        ([INIT, r"cmd=finalize\n", r"cmd=get_maxes\n"], "a request after finalize"),
        ([INIT, r"nonsense\n"], "a line without a command"),
        ([INIT, r"cmd=\x22rude\n"], "a command that is none"),
        ([INIT, r"cmd=get\x00key=a\n"], "a zero byte in a line"),
        ([INIT, "70000*x"], "a message without an end|a line that is too long"),
        ([INIT, r"70*a=b ", r"cmd=get\n"], "too many words in a line"),
        ([INIT, r"cmd=put key= value=a\n"], "a key that is empty or too long"),
        ([INIT, "cmd=put key=" + "k" * 64 + r" value=a\n"], "a key that is empty or too long"),
        ([INIT, "cmd=put key=k value=" + "v" * 1024 + r"\n"], "a value that is too long"),
        ([INIT, "9000*cmd=put key=k value=" + "v" * 1000 + r"\n"], "it puts more than a rank may|does not read"),
        ([INIT, r"cmd=barrier_in\ncmd=get_maxes\n"], "a request while another one is not answered"),
        ([INIT, r"200000*cmd=get_maxes\n"], "it does not read its answers"),
        ([INIT, r"mcmd=spawn\n", "2000*arg1=" + "x" * 1000 + r"\n"], "its request to spawn is too long"),
        ([INIT2, r"999999cmd=fullinit;"], "a message without an end"),
        ([INIT2, r"    -9cmd=fullinit;"], "a message without an end"),
        ([INIT2, r"    10no list..;;"], "a message that is no list of words"),
        ([INIT2, r"     6a=b;c=d"], "a message without a command"),
        ([INIT2, "    80cmd=" + "a" * 75 + ";"], "a message without a command"),
    ],
)
def test_a_rank_that_breaks_the_rules_ends_the_job(
    sanitized_ranker: Path, tmp_path: Path, sent: list[str], words: str
) -> None:
    with Parts(sanitized_ranker, tmp_path, [(2, 1)], rank("raw", *sent)) as parts:
        assert parts.codes() == [1]
        assert re.search(f"rank 0 does not keep to PMI: ({words})", parts.err()), parts.err()


def test_a_rank_cannot_make_the_ranker_grow(ranker: Path, tmp_path: Path) -> None:
    """It has 16 MB of address space, and never needs more."""
    small = tmp_path / "small"
    small.write_text(f'#!/bin/sh\nulimit -S -v 16384\nexec {ranker} "$@"\n')
    small.chmod(0o755)
    command = [
        "sh",
        "-c",
        'ulimit -S -v unlimited; exec "$@"',
        "sh",
        *rank("raw", INIT, r"300000*cmd=put key=k value=v\n"),
    ]
    with Parts(small, tmp_path, [(1, 1)], command) as parts:
        assert parts.codes() == [1]
        assert "rank 0 does not keep to PMI: it " in parts.err()


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes(sanitized_ranker: Path, tmp_path: Path, seed: int) -> None:
    """Nothing that a rank sends breaks the ranker: it ends by itself, with words."""
    chance = random.Random(seed)
    words = [
        "cmd=",
        "put ",
        "get ",
        "key=",
        "value=",
        "kvsname=",
        "\\n",
        ";",
        "    20",
        "barrier_in",
        "mcmd=spawn",
        "=",
    ]
    sent = [INIT if seed % 2 else INIT2]
    for _ in range(60):
        other = "".join(f"\\x{chance.randrange(256):02x}" for _ in range(chance.randrange(20)))
        sent.append(chance.choice([*words, other]).replace("*", "+"))
    with Parts(sanitized_ranker, tmp_path, [(2, 1)], rank("raw", *sent, *["9000*cmd=x\\n"] * 9)) as parts:
        assert parts.codes() == [1]
        assert "does not keep to PMI" in parts.err()


def part_alone(ranker: Path, place: Path, command: list[str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """Part 0 of two, each of one rank; the test is part 1: to where it writes, and from where it reads."""
    reading, writing = os.pipe()
    back_reads, back_writes = os.pipe()
    (place / "status").touch()
    options = ["--part", "0", "--layout", "1x2", "--down", f"{reading},{back_writes}"]
    process = subprocess.Popen(
        [str(ranker), *options, "--status", str(place / "status"), "--", *command],
        pass_fds=(reading, back_writes),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "POOLNODE_MPI_NAME": "a"},
    )
    os.close(reading)
    os.close(back_writes)
    return process, writing, back_reads


def until(happened: Callable[[], bool]) -> None:
    """Wait for that, with a deadline."""
    deadline = time.monotonic() + LIMIT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def end_of_another_part(at: float) -> bytes:
    """Its rank exited with 7 at that time (seconds since 1970)."""
    body = b"e" + bytes([1, 7, 1]) + int(at * 1e6).to_bytes(8, "little") + b"rank 1 exited with code 7\0"
    return len(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(("later", "code"), [(-60.0, 7), (60.0, 3)])
@pytest.mark.parametrize("unseen", [False, True])
def test_of_two_ends_the_first_is_the_jobs_and_each_is_named(
    sanitized_ranker: Path, tmp_path: Path, later: float, code: int, unseen: bool
) -> None:
    """A rank that vanishes may take one of another part with it before that part hears of its end."""
    process, writing, back_reads = part_alone(sanitized_ranker, tmp_path, ["sh", "-c", "read line; exit 3"])
    assert process.stdin is not None
    if unseen:
        until(lambda: [one.name() for one in psutil.Process(process.pid).children()] == ["sh"])
        process.send_signal(signal.SIGSTOP)
        process.stdin.close()
        until(lambda: psutil.Process(process.pid).children()[0].status() == psutil.STATUS_ZOMBIE)
    else:
        process.stdin.close()
        assert os.read(back_reads, 1)  # it says how its rank has ended
    os.write(writing, end_of_another_part(time.time() + later))
    process.send_signal(signal.SIGCONT)
    assert process.wait(LIMIT) == code
    assert process.stderr is not None
    said = process.stderr.read()
    os.close(writing)
    os.close(back_reads)
    assert said.decode().startswith("poolnode: rank 0 exited with code 3\n")
    assert ("but first: rank 1 exited with code 7" in said.decode()) == (code == 7)


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 9,
        b"\xff" * 64,
        b"\x02\0\0\0p",
        b"\x03\0\0\0pab",
        b"\x01\0\0\0q",
        b"\x03\0\0\0e\x02\x7f",
        b"\x05\0\0\0pa\0bc",
    ],
)
def test_nonsense_from_another_part_is_named(sanitized_ranker: Path, tmp_path: Path, junk: bytes) -> None:
    process, writing, back_reads = part_alone(sanitized_ranker, tmp_path, ["sleep", "600"])
    os.write(writing, junk)
    os.close(writing)
    _, said = process.communicate(timeout=LIMIT)
    os.close(back_reads)
    assert process.returncode == 1
    assert b"sent what is no message" in said or b"connection to another part of the job has ended" in said


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--layout", "2"],
        ["--layout", "0x1"],
        ["--layout", "2x1", "--part", "1"],
        ["--layout", "2x1", "--up", "5"],
        ["--layout", "2x1", "--up", "5,900"],
        ["--layout", "9999x9"],
        ["--layout", "2x1", "--wrong"],
    ],
)
def test_wrong_options(sanitized_ranker: Path, options: list[str]) -> None:
    command = [str(sanitized_ranker), *options, "--", "true"]
    env = {**os.environ, "POOLNODE_MPI_NAME": "a"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=LIMIT)
    assert done.returncode == 125
    assert done.stderr.startswith("poolnode: the ranker was started with a wrong ")
