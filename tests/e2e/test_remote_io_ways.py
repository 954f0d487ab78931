"""Jobs with remote_io without FUSE: their owner's files by notification, or copies; the log says which."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import HEAD, PATIENCE, Nodes, client, outcome, program, slots, token, until

NO_FUSE = "there is no /dev/fuse (switched off)"
NEITHER = f"{NO_FUSE} and no system call notification (switched off)"


@pytest.fixture(scope="module")
def trio(whose_pool: object) -> Iterator[Nodes]:
    """`all[0]` is where jobs are submitted; the others are called by the way they are held to."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for way in ("notify", "stage"):
            joined, away = await token(head, "startd"), nodes.elsewhere()
            node = nodes.start(way, "startd", join=joined, machine=away, FILESYSTEM_DOMAIN=way, REMOTE_IO_WAY=way)
            node.ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


def directory(trio: Nodes, name: str) -> Path:
    """The directory the test's user works in; who runs root's jobs may write to it."""
    path = trio.home(name)
    path.chmod(0o777)
    return path


async def test_by_notification_where_there_is_no_fuse(trio: Nodes) -> None:
    home = directory(trio, "notified")
    (home / "data").mkdir(mode=0o777)
    (home / "data/numbers").write_text("".join(f"{number}\n" for number in range(10000)))
    text = """
pwd; cat
cd data; sort -rn numbers | head -2; echo more >> numbers; mkdir new && mv new newer; ls
grep -c /dev/fuse /proc/self/mounts
echo >../ready; until [ -e ../go ]; do sleep 0.05; done
"""
    (home / "in").write_text("hello\n")
    async with client(trio.all[0]) as pool:
        cluster = await pool.submit(
            {
                "executable": program(home, text),
                "input": "in",
                "output": "out",
                "error": "err",
                "log": "log",
                "remote_io": "on",
                "requirements": 'Machine == "notify"',
            },
            iwd=str(home),
        )
        await until((home / "ready").exists, "the job to work on its files")
        told = str(await pool.why((cluster.cluster, 0)))
        (home / "go").touch()
        result = (await cluster.wait(PATIENCE, until_stuck=True))[0]
    log = (home / "log").read_text()
    assert (result.state, result.exit_code) == ("completed", 0), log
    assert (home / "err").read_text() == ""
    assert (home / "out").read_text() == f"{home}\nhello\n9999\n9998\nnewer\nnumbers\n0\n"
    assert (home / "data/numbers").read_text().endswith("9999\nmore\n")
    assert sorted(os.listdir(home / "data")) == ["newer", "numbers"]
    assert f"by notification, as {NO_FUSE}" in log
    assert "locks on them bind its own processes only" in log
    assert f"its owner's files: by notification, as {NO_FUSE}" in told


async def test_by_copies_where_there_is_neither(trio: Nodes) -> None:
    home = directory(trio, "copied")
    (home / "in").write_text("hello\n")
    async with client(trio.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, "cat in; echo made > made"),
            transfer_input_files="in",
            output="out",
            log="log",
            remote_io="auto",
            requirements='Machine == "stage"',
        )
    log = (home / "log").read_text()
    assert (result.state, result.exit_code) == ("completed", 0), log
    assert ((home / "out").read_text(), (home / "made").read_text()) == ("hello\n", "made\n")
    assert f"its owner's files: copied, as {NEITHER}" in log


async def test_a_job_that_must_see_its_files_waits_for_another_machine(trio: Nodes) -> None:
    home = directory(trio, "waits")
    async with client(trio.all[0]) as pool:
        described = {"executable": program(home, "true"), "remote_io": "on", "requirements": 'Machine == "stage"'}
        cluster = await pool.submit(described, iwd=str(home))
        told = str(await pool.why((cluster.cluster, 0)))
        await cluster.remove("seen")
    assert "HasRemoteIO" in told
    assert f"its owner's files cannot be shown to it on 1 machine: {NEITHER} (1)" in told
    assert "way out: with `remote_io = auto` they are copied there" in told
