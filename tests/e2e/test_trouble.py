"""Bad input and trouble: each is one line that names the thing and the way out, never a stack trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.wire.tokens import Token
from tests.e2e.support import (
    ALL,
    HEAD,
    PATIENCE,
    Node,
    Nodes,
    client,
    family,
    one_line,
    outcome,
    poolnode,
    program,
    slots,
    token,
    until,
)


def complaint(node: Node, *parts: str) -> str:
    """The one line with which a node ended that could not be started."""
    assert node.ended() not in (0, None)
    lines = [entry["text"] for entry in node.log if "text" in entry]
    assert len(lines) == 1, node.text
    assert lines[0].startswith("poolnode: ")
    assert all(part in lines[0] for part in parts), lines[0]
    return str(lines[0])


# -- programs ------------------------------------------------------------------------------------------------


def foreign(path: Path) -> str:
    """A program for a processor that this is not."""
    machine = 0x15  # a 64-bit PowerPC
    header = struct.pack(">HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 0, 0, 0, 0)
    path.write_bytes(b"\x7fELF" + bytes([2, 2, 1, 0]) + bytes(8) + header)
    path.chmod(0o755)
    return str(path)


async def test_programs_that_cannot_run_hold_their_job_with_a_reason(nodes: Nodes) -> None:
    """They are spoilt after the submit, which would have refused some of them."""
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()

    def spoil(path: Path) -> None:
        if path.name == "gone":
            path.unlink()
        elif path.name == "foreign":
            foreign(path)
        elif path.name == "interpreter":
            path.write_text("#!/no/such/thing\n")
        elif path.name == "empty":
            path.write_text("")
        elif path.name == "plain":
            path.chmod(0o644)
        elif path.name == "directory":
            path.unlink()
            path.mkdir()

    cases = {
        "gone": "no such file",
        "foreign": "neither a program for this machine",
        "interpreter": "/no/such/thing",
        "empty": "neither a program",
        "plain": "not marked executable",
        "directory": "directory",
    }
    async with client(whole) as pool:
        for name, words in cases.items():
            path = program(home, "true", name)
            cluster = await pool.submit({"executable": path, "hold": True}, iwd=str(home))
            spoil(Path(path))
            await cluster.release()
            (result,) = await cluster.wait(20, until_stuck=True)
            assert result.state == "held", (name, result)
            assert path in result.reason
            assert words in result.reason.lower(), result.reason
            assert len(result.reason.splitlines()) == 1
            await cluster.remove()


async def test_a_program_that_is_not_on_the_other_machine_holds_its_job(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        result = await outcome(
            pool, home, executable="/no/such/program", transfer_executable=False, should_transfer_files="YES"
        )
    assert result.state == "held"
    assert "/no/such/program" in result.reason
    assert "no such file" in result.reason.lower()


async def test_what_was_submitted_runs_though_the_file_has_changed_since(nodes: Nodes) -> None:
    """The executable is kept from the submit on (A12), over a restart too."""
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    script = program(home, "echo first")
    commands = {"executable": script, "output": "out", "hold": True, "should_transfer_files": "YES"}
    async with client(whole) as pool:
        cluster = await pool.submit(commands, iwd=str(home))
        kept = whole.state / "spool" / "executables"
        await until(lambda: [name for name in os.listdir(kept) if not name.startswith(".")], "the copy")
    program(home, "echo second")
    whole.stop()
    again = nodes.start("whole", ALL).ready()
    async with client(again) as pool:
        await pool.cluster(cluster.cluster, 1).release()
        (result,) = await pool.cluster(cluster.cluster, 1).wait(20, until_stuck=True)
    assert result.ok, result
    assert (home / "out").read_text() == "first\n"


async def test_jobs_of_one_cluster_may_have_programs_of_their_own(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    for number in (0, 1):
        program(home, f"echo {number}", f"p{number}.sh")
    commands = {"executable": "p$(Process).sh", "output": "out$(Process)", "should_transfer_files": "YES", "queue": 2}
    async with client(whole) as pool:
        cluster = await pool.submit({**commands, "hold": True}, iwd=str(home))
        kept = whole.state / "spool" / "executables"
        await until(lambda: [name for name in os.listdir(kept) if not name.startswith(".")], "the copy")
        await cluster.release()
        assert all(result.ok for result in await cluster.wait(20, until_stuck=True))
    assert [(home / f"out{number}").read_text() for number in (0, 1)] == ["0\n", "1\n"]


@pytest.mark.parametrize("far", [False, True], ids=["shared", "carried"])
async def test_an_output_directory_that_is_gone_holds_the_job(nodes: Nodes, far: bool) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    (home / "results").mkdir()
    async with client(whole) as pool:
        commands = {
            "executable": program(home, "echo done"),
            "output": "results/out",
            "hold": True,
            **({"should_transfer_files": "YES"} if far else {}),
        }
        cluster = await pool.submit(commands, iwd=str(home))
        (home / "results").rmdir()
        await cluster.release()
        (result,) = await cluster.wait(20, until_stuck=True)
        assert result.state == "held"
        assert f"{home}/results/out" in result.reason
        assert "no such file" in result.reason
        (home / "results").mkdir()
        await cluster.release()
        (result,) = await cluster.wait(20, until_stuck=True)
        assert result.ok, result


# -- full disks ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small(kilobytes: int) -> Iterator[None]:
    """No process started meanwhile may make a file larger than that: what a full disk looks like to a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_on_the_execute_side_does_not_hold_the_node_up(nodes: Nodes) -> None:
    """The job is tried again later, and its log says why; the node goes on and takes the next job."""
    home = nodes.directory("home")
    (home / "large").write_bytes(bytes(3_000_000))
    head = nodes.start("head", HEAD).ready()
    joining = await token(head, "startd")
    with small(1000):
        run = nodes.start("run", "startd", join=joining, FILESYSTEM_DOMAIN="far").ready()
    async with client(head) as pool:
        await slots(pool, 1)
        script = program(home, "ls -l large")
        large = {"executable": script, "transfer_input_files": "large", "log": "log"}
        await pool.submit(large, iwd=str(home))
        said = "cannot write the job's input on the execute machine"
        await until(lambda: (home / "log").exists() and said in (home / "log").read_text(), "the log to say why")
        (line,) = [line for line in (home / "log").read_text().splitlines() if said in line]
        assert "file too large" in line.lower() or "no space" in line.lower()
        assert "it is not sent to run for" in line
        await pool.act("remove", everything=True)
        assert (await outcome(pool, home, executable=program(home, "true"))).ok
    await until(lambda: not os.listdir(run.state / "execute"), "the scratch directories to go")


async def test_a_full_disk_on_the_submit_side_holds_the_job_and_leaves_no_half_output(nodes: Nodes) -> None:
    home = nodes.directory("home")
    with small(2000):
        head = nodes.start("head", HEAD).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd"), FILESYSTEM_DOMAIN="far").ready()
    async with client(head) as pool:
        await slots(pool, 1)
        script = program(home, "head -c 3000000 /dev/zero > large; echo small > small")
        result = await outcome(pool, home, executable=script, transfer_output_files="small, large")
        assert result.state == "held"
        assert f"{home}/large" in result.reason
        assert "file too large" in result.reason.lower() or "no space" in result.reason.lower()
        assert sorted(path.name for path in home.iterdir()) == ["job.sh"], "no part of an output is left"
        await pool.act("remove", everything=True)
        assert (await outcome(pool, home, executable=program(home, "true"))).ok
    run.stop()


# -- coming in -----------------------------------------------------------------------------------------------


async def test_tokens_that_are_no_good_are_refused_in_words(nodes: Nodes) -> None:
    head = nodes.start("head", HEAD).ready()
    good = await token(head, "startd")
    nodes.start("first", "startd", join=good).ready().stop()
    complaint(nodes.start("second", "startd", join=good), "cannot join as second", "used already", "poolnode token")
    complaint(nodes.start("third", "startd", join="nonsense"), "cannot read a token there: no such file")
    complaint(nodes.start("third", "startd", join="pooljoin-nonsense"), "not whole")
    complaint(nodes.start("third", "startd", join=good[:-5]), "not whole")
    expired, ends = await token(head, "startd", lifetime=1), time.time() + 1
    await until(lambda: time.time() > ends, "the token to expire")
    complaint(nodes.start("third", "startd", join=expired), "cannot join as third", "expired")
    read = Token.read(await token(head, "startd"))
    forged = Token(read.kind, read.address, read.fingerprint, read.id, "00" * 24, read.roles)
    complaint(nodes.start("third", "startd", join=forged.text), "cannot join as third", "not known here")
    stranger = Token(read.kind, read.address, "00" * 32, read.id, read.secret, read.roles)
    complaint(nodes.start("third", "startd", join=stranger.text), "not of the pool that made the token")
    more = await token(head, "startd")
    complaint(nodes.start("third", "startd,schedd", join=more), "not for schedd")
    nowhere = Token(read.kind, "tcp://127.0.0.1:1", read.fingerprint, read.id, read.secret, read.roles)
    complaint(nodes.start("fourth", "startd", join=nowhere.text), "127.0.0.1:1")
    complaint(nodes.start("fifth", "startd"), "--join FILE")
    # A node that has joined needs the token no more, and does not mind one that is used up.
    nodes.start("first", "startd", join=good).ready()


async def test_two_nodes_cannot_have_one_name(nodes: Nodes) -> None:
    head = nodes.start("head", HEAD).ready()
    nodes.start("twin", "startd", join=await token(head, "startd")).ready()
    other = nodes.start("other", "startd", join=await token(head, "startd"), NODE_NAME="twin")
    complaint(other, "cannot join as twin", "NODE_NAME")
    third = nodes.start("third", "startd", join=await token(head, "startd"), NODE_NAME="head")
    complaint(third, "cannot join as head", "NODE_NAME")


async def test_a_second_node_on_one_state_directory_is_refused(nodes: Nodes) -> None:
    first = nodes.start("whole", ALL).ready()
    second = nodes.start("whole", ALL, NODE_NAME="second")
    complaint(second, str(first.state), "another node")
    home = nodes.directory("home")
    async with client(first) as pool:
        assert (await outcome(pool, home, executable="/bin/true")).ok, "the first one did not notice"


async def test_rubbish_on_the_port_disturbs_nobody(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    port = int(whole.said("ready")["address"].rpartition(":")[2])
    rubbish = (b"", b"\0" * 70_000, b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000), b"\x16\x03\x01\x02\x00" + bytes(512))
    for data in rubbish:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), 5) as link:
            link.sendall(data)
    reader, writer = await asyncio.open_unix_connection(whole.state / "node.sock")
    writer.write(os.urandom(100_000))
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            await reader.read(10)
    writer.close()
    async with client(whole) as pool:
        assert (await outcome(pool, home, executable="/bin/true")).ok
    assert not any(line.get("level") == "error" for line in whole.log), whole.text


def test_nodes_that_cannot_start_say_why(nodes: Nodes) -> None:
    home = nodes.directory("home")
    (home / "pool.conf").write_text("START = TRUE\nUPDATE_INTERVAL = often\n")
    complaint(nodes.start("a", ALL, config=home / "pool.conf"), f"{home}/pool.conf:2", "UPDATE_INTERVAL")
    complaint(nodes.start("a", ALL, config=home / "none.conf"), "none.conf")
    complaint(nodes.start("a", ALL, START="Memory >"), "START")
    complaint(nodes.start("a", ALL, SLOTS="many"), "SLOTS = many")
    complaint(nodes.start("a", ALL, LISTEN="127.0.0.1:none"), "127.0.0.1:none")
    complaint(nodes.start("a", ALL, LISTEN="192.0.2.7:9618"), "192.0.2.7")
    complaint(nodes.start("a", "collector,cook"), "cook")
    complaint(nodes.start("a", ALL, NODE_NAME="a b/c"), "a b/c")
    (nodes.place / "b.state").write_text("a file")
    complaint(nodes.start("b", ALL), str(nodes.state("b")), "--state")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        complaint(nodes.start("c", ALL, LISTEN=f"127.0.0.1:{port}"), str(port), "in use")


def test_a_state_directory_is_nobody_elses(nodes: Nodes) -> None:
    whole = nodes.start("whole", ALL).ready()
    assert stat.S_IMODE(whole.state.stat().st_mode) & 0o077 in (0, 0o011)
    for name in ("trust", "spool", "keepers"):
        assert stat.S_IMODE((whole.state / name).stat().st_mode) == 0o700, name
    key = whole.state / "trust" / "authority.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_commands_without_a_node_say_so(nodes: Nodes) -> None:
    nowhere = str(nodes.place / "none.sock")
    for command in (("q",), ("status",), ("rm", "1"), ("token",), ("config",)):
        assert nowhere in one_line(poolnode(*command, POOLNODE_ADDRESS=nowhere))


async def test_what_is_asked_of_a_node_wrongly_is_one_line(nodes: Nodes) -> None:
    whole = nodes.start("whole", ALL).ready()

    def said(*command: str) -> str:
        return one_line(poolnode(*command, POOLNODE_ADDRESS=whole.address))

    assert "77" in said("rm", "77")
    assert "the expression cannot be read" in said("q", "--constraint", "Nonsense(")
    assert "SLOTZ" in said("config", "SLOTZ")
    assert "77" in said("tail", "77")
    assert "77" in said("wait", "77")


async def test_a_job_whose_start_hangs_can_be_removed(nodes: Nodes) -> None:
    """Its input is a named pipe that nobody writes to: the program never begins."""
    home = nodes.directory("home")
    os.mkfifo(home / "in")
    whole = nodes.start("whole", ALL, SLOTS="1").ready()
    async with client(whole) as pool:
        cluster = await pool.submit({"executable": "/bin/cat", "input": "in"}, iwd=str(home))
        await until(lambda: any(map(opens_a_file, family())), "a start that hangs")
        await pool.act("remove", ids=[(cluster.cluster, 0)])
        (result,) = await cluster.wait(PATIENCE)
        assert result.state == "removed", result
        assert (await outcome(pool, home, executable="/bin/true")).ok, "the slot is free again"


def opens_a_file(process: psutil.Process) -> bool:
    """Whether it is inside openat, which ends at once but for a named pipe without its other end."""
    with contextlib.suppress(OSError, psutil.Error):
        return process.name() == "keeper" and Path(f"/proc/{process.pid}/syscall").read_text().startswith("257 ")
    return False
