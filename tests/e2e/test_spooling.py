"""Jobs submitted from another machine: their files go along, wait at the schedd, and their outputs are fetched."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from pool.errors import PoolError
from tests.e2e.support import ALL, HEAD, Nodes, client, one_line, poolnode, program, until
from tests.ordinary_user import NAME, PYTHON, OrdinaryUser


def spooled(state: Path) -> list[str]:
    directory = state / "spooled"
    return sorted(os.listdir(directory)) if directory.exists() else []


async def test_files_wait_at_the_schedd_and_outputs_are_fetched(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedd is restarted in between, and sees nothing of the submitter's files from the submit on."""
    home, other = nodes.directory("home"), nodes.directory("other")
    monkeypatch.setenv("XDG_STATE_HOME", str(nodes.directory("receipts")))
    head = nodes.start("head", HEAD).ready()
    script = program(home, f"cat data/in.txt; ls -s sparse | cut -d' ' -f1 > blocks; cp sparse big; echo {other} >&2")
    (home / "data").mkdir()
    (home / "data" / "in.txt").write_text("the input\n")
    with (home / "sparse").open("wb") as file:
        file.truncate(1 << 26)
        file.write(b"begin")
    (home / "job.log").write_text("000 (001.000.000) of another cluster\n...\n")
    commands = {
        "executable": script,
        "transfer_input_files": "data, sparse",
        "transfer_output_files": "blocks, big",
        "transfer_output_remaps": f'"blocks = {other}/blocks.$(Process)"',
        "output": "out.$(Process)",
        "error": f"{other}/err.$(Process)",
        "log": "job.log",
        "queue": 2,
    }
    async with client(head) as pool:
        cluster = await pool.submit(commands, iwd=str(home), spool=True)
        assert cluster.spooled
        assert [result.state for result in await cluster.results()] == ["idle", "idle"]
    away = home.rename(home.with_name("moved-away"))
    assert head.stop() == 0
    again = nodes.start("head", ALL).ready()
    async with client(again) as pool:
        cluster = pool.cluster(cluster.cluster, 2)
        results = await cluster.wait(60)
        assert [result.ok for result in results] == [True, True], results
        assert spooled(again.state) == [str(cluster.cluster)]
        assert [ad.value("JobStatus") for ad in await pool.jobs()] == [4, 4]
        away.rename(home)
        taken = await cluster[1].fetch(nodes.place / "first-look", keep=True)
        assert (nodes.place / "first-look" / "out.1").read_text() == "the input\n"
        assert taken.jobs == ((cluster.cluster, 1),)
        done = await cluster.fetch()
        assert sorted(done.jobs) == [(cluster.cluster, 0), (cluster.cluster, 1)]
        assert await pool.jobs() == []
        for proc in range(2):
            assert (home / f"out.{proc}").read_text() == "the input\n"
            assert (other / f"err.{proc}").read_text() == f"{other}\n"
            assert int((other / f"blocks.{proc}").read_text()) < 1000
        status = (home / "big").stat()
        assert (status.st_size, status.st_blocks < 2000) == (1 << 26, True)
        log = (home / "job.log").read_text()
        assert log.startswith("000 (001.000.000) of another cluster\n...\n")
        assert log.count("005 (") == 2, log
        await until(lambda: not spooled(again.state), "the spool to be empty")
        with pytest.raises(PoolError, match="were fetched before"):
            await cluster.fetch()


@pytest.mark.own_pool("has an ordinary user already")
async def test_a_user_elsewhere_sends_files_and_has_the_outputs_back(nodes: Nodes) -> None:
    """Root's pool, an ordinary user with a token, in a file tree whose home nobody else sees."""
    user = OrdinaryUser(nodes.place)
    rule = f"somebody = {NAME}"
    whole = nodes.start("whole", ALL, machine=user.machine, RUN_AS="owner", MAP_USERS=rule).ready()
    made = poolnode("token", "--user", "somebody", POOLNODE_ADDRESS=whole.address)
    assert made.returncode == 0, made.stderr
    refused = one_line(poolnode("token", "--user", "nobody-here", POOLNODE_ADDRESS=whole.address))
    assert "this machine has no user nobody-here" in refused
    assert "MAP_USERS = nobody-here = ACCOUNT" in refused
    address = whole.said("ready")["address"]
    lines = (
        f"mount -t tmpfs none {user.home} && mkdir {user.home}/work && cd {user.home}/work && echo secret > in.txt"
        " && printf '#!/bin/sh\\ncat in.txt; id -un > who\\n' > job.sh && chmod 755 job.sh"
        " && printf 'executable=job.sh\\ntransfer_input_files=in.txt\\noutput=out\\nqueue 2\\n' > a.sub"
        f" && chown -R {NAME} {user.home}"
        f" && setpriv --reuid {NAME} --regid {NAME} --clear-groups {PYTHON} -m pool submit --wait a.sub"
        " && cat out who && find . -type f | sort"
    )
    environ = user.environ | {"POOLNODE_TOKEN": made.stdout.strip(), "POOLNODE_ADDRESS": address}
    command = [*user.machine, "sh", "-c", lines]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"secret\n{NAME}\n" in done.stdout
    assert done.stdout.endswith("./a.sub\n./in.txt\n./job.sh\n./out\n./who\n")
    async with client(whole) as pool:
        assert await pool.jobs() == []
    await until(lambda: not spooled(whole.state), "the spool to be empty")


async def test_a_job_of_several_processes_has_its_files_too(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a pipe, and one with a file that is mapped to a pipe."""
    home = nodes.directory("home")
    monkeypatch.setenv("XDG_STATE_HOME", str(nodes.directory("receipts")))
    whole = nodes.start("whole", ALL).ready()
    (home / "in.txt").write_text("b\na\nb\n")
    (home / "sorted").write_text("before\n")
    mapped = {
        "executable": "a=/bin/sh b=/bin/cat",
        "pipe": "a > made - > b",
        "a.arguments": "\"-c 'echo mapped > made'\"",
        "output": "from-mapped",
    }
    async with client(whole) as pool:
        piped = {"executable": "sort -u < in.txt | cat >> sorted", "should_transfer_files": "yes"}
        clusters = [await pool.submit(commands, iwd=str(home), spool=True) for commands in (piped, mapped)]
        away = home.rename(home.with_name("moved-away"))
        results = await pool.wait(clusters, timeout=60)
        assert [result.ok for result in results] == [True, True], results
        away.rename(home)
        assert len((await pool.fetch(clusters)).jobs) == 2
        assert (home / "sorted").read_text() == "before\na\nb\n"
        assert (home / "from-mapped").read_text() == "mapped\n"


async def test_a_full_disk_at_home_loses_no_output(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    home = nodes.directory("home")
    monkeypatch.setenv("XDG_STATE_HOME", str(nodes.directory("receipts")))
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        # /dev/full on the submit side; at the schedd a file of that name.
        commands = {"executable": "/bin/echo", "arguments": "kept", "output": "/dev/full", "transfer_executable": False}
        cluster = await pool.submit(commands, iwd=str(home), spool=True)
        assert [result.ok for result in await cluster.wait(60)] == [True]
        for _ in range(2):
            with pytest.raises(PoolError, match="no space left"):
                await cluster.fetch()
            assert len(await pool.jobs()) == 1
        await cluster.fetch(nodes.place / "elsewhere")
        assert (nodes.place / "elsewhere" / "full").read_text() == "kept\n"
        assert await pool.jobs() == []


async def test_what_cannot_be_sent_along_is_refused_by_name(nodes: Nodes) -> None:
    home = nodes.directory("home")
    head = nodes.start("head", HEAD, MAX_SPOOL_BYTES_PER_OWNER="100000").ready()
    script = program(home, "true")
    (home / "big").write_bytes(os.urandom(200_000))
    async with client(head) as pool:
        for commands, said in (
            ({"remote_io": "on"}, "remote_io = on works on the files of the schedd's machine"),
            ({"should_transfer_files": "no"}, "should_transfer_files = NO"),
            ({"universe": "local"}, "universes local and scheduler"),
            ({"transfer_input_files": "in.$$(OpSys)"}, r"\$\$\(\) is known only where the job runs"),
            ({"transfer_input_files": "big"}, "nothing was queued: no room .* MAX_SPOOL_BYTES_PER_OWNER = 100000"),
        ):
            (home / "in.$$(OpSys)").touch()
            with pytest.raises(PoolError, match=said):
                await pool.submit({"executable": script, **commands}, iwd=str(home), spool=True)
        assert await pool.jobs() == []
        await until(lambda: not spooled(head.state), "the spool to be empty")
        await pool.submit({"executable": script, "remote_io": "auto"}, iwd=str(home), spool=True)
