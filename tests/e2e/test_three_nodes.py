"""A pool of three nodes over TLS: `head` queues and matches, `near` shares its files, `far` gets them sent (B4)."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, outcome, processes_with, program, slots, token, until

NEAR, FAR = 'Machine == "near"', 'Machine == "far"'


def is_empty(directory: Path) -> bool:
    return not os.listdir(directory)


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    """The three nodes: `all[0]` is the head."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        near = nodes.start("near", "startd", join=await token(head, "startd"))
        far = nodes.start("far", "startd", join=await token(head, "startd"), FILESYSTEM_DOMAIN="elsewhere")
        near.ready(), far.ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    """The directory the test's user works in."""
    return pool3.directory(support.directory_name(request))


async def test_files_are_opened_where_they_are_on_a_machine_that_shares_them(pool3: Nodes, home: Path) -> None:
    (home / "in").write_text("hello\n")
    script = program(home, "pwd; cat > made; cat made; echo oops >&2; exit 3")
    async with client(pool3.all[0]) as pool:
        result = await outcome(pool, home, executable=script, input="in", output="out", error="err", requirements=NEAR)
    assert (result.state, result.exit_code) == ("completed", 3), result
    assert result.host is not None
    assert result.host.endswith("@near")
    assert (home / "out").read_text() == f"{home}\nhello\n"
    assert (home / "err").read_text() == "oops\n"
    assert (home / "made").read_text() == "hello\n"


async def test_files_are_carried_to_a_machine_that_does_not_share_them(pool3: Nodes, home: Path) -> None:
    (home / "in").write_text("from stdin\n")
    (home / "a.txt").write_text("A\n")
    (home / "tree" / "deep").mkdir(parents=True)
    (home / "tree" / "deep" / "b.txt").write_text("B\n")
    (home / "inner").mkdir()
    (home / "inner" / "c.txt").write_text("C\n")
    (home / "results").mkdir()
    text = """
cat; cat a.txt tree/deep/b.txt c.txt
echo whole > made; echo secret > left
mkdir -p sub/deeper sub/none; echo 1 > sub/one; echo 2 > sub/deeper/two; chmod 750 sub/one
echo oops >&2
exit 7
"""
    async with client(pool3.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, text),
            input="in",
            output="out",
            error="err",
            log="log",
            transfer_input_files="a.txt, tree, inner/",
            transfer_output_files="made, sub",
            transfer_output_remaps='"made=results/renamed"',
            requirements=FAR,
        )
    assert (result.state, result.exit_code) == ("completed", 7), result
    assert (home / "out").read_text() == "from stdin\nA\nB\nC\n"
    assert (home / "err").read_text() == "oops\n"
    assert (home / "results" / "renamed").read_text() == "whole\n"
    assert (home / "sub" / "one").read_text() == "1\n"
    assert (home / "sub" / "one").stat().st_mode & 0o777 == 0o750
    assert (home / "sub" / "deeper" / "two").read_text() == "2\n"
    assert (home / "sub" / "none").is_dir()
    assert not (home / "left").exists(), "only what was asked for is sent back"
    assert not (home / "made").exists()
    log = (home / "log").read_text()
    sent = len("from stdin\nA\nB\nC\n" + "oops\n" + "whole\n" + "1\n" + "2\n")
    received = len(text) + len("from stdin\n" + "A\n" + "B\n" + "C\n")
    for which in ("Run", "Total"):
        assert f"\t{sent}  -  {which} Bytes Sent By Job" in log, log
        found = re.search(rf"\t(\d+)  -  {which} Bytes Received By Job", log)
        assert found is not None, log
        assert int(found[1]) >= received, "inputs and executable"


async def test_what_is_new_or_changed_comes_home_by_itself(pool3: Nodes, home: Path) -> None:
    (home / "same").write_text("same\n")
    (home / "changed").write_text("before\n")
    before = (home / "same").stat()
    script = program(home, "echo after > changed; echo fresh > new; mkdir d; echo no > d/f")
    async with client(pool3.all[0]) as pool:
        result = await outcome(pool, home, executable=script, transfer_input_files="same, changed", requirements=FAR)
    assert result.ok, result
    assert (home / "changed").read_text() == "after\n"
    assert (home / "new").read_text() == "fresh\n"
    assert not (home / "d").exists()
    assert ((home / "same").stat().st_ino, (home / "same").stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_output_and_error_may_be_one_file(pool3: Nodes, home: Path) -> None:
    script = program(home, "echo one; echo two >&2; echo three")
    for where in (NEAR, FAR):
        async with client(pool3.all[0]) as pool:
            result = await outcome(pool, home, executable=script, output="both", error="both", requirements=where)
        assert result.ok, result
        assert (home / "both").read_text() == "one\ntwo\nthree\n"
        (home / "both").unlink()


async def test_files_from_below_and_elsewhere_land_where_they_should(pool3: Nodes, home: Path) -> None:
    """A file named with a directory reaches the submit side without it, as users of such systems know it."""
    script = program(home, "mkdir -p a/b; echo x > a/b/x; echo y > y")
    (home / "out").mkdir()
    async with client(pool3.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=script,
            transfer_output_files="a/b/x, y",
            transfer_output_remaps=f'"y={home}/out/z"',
            requirements=FAR,
        )
    assert result.ok, result
    assert (home / "x").read_text() == "x\n"
    assert (home / "out" / "z").read_text() == "y\n"
    assert not (home / "a").exists()


async def test_an_input_that_went_after_the_submit_holds_the_job(pool3: Nodes, home: Path) -> None:
    (home / "a.txt").write_text("A\n")
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(
            {
                "executable": program(home, "cat a.txt"),
                "transfer_input_files": "a.txt",
                "requirements": FAR,
                "hold": True,
            },
            iwd=str(home),
        )
        (home / "a.txt").unlink()
        await cluster.release()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.state == "held"
        assert str(home / "a.txt") in result.reason
        assert "no such file" in result.reason.lower()
        (home / "a.txt").write_text("A again\n")
        await cluster.release()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result


async def test_an_output_that_was_not_made_holds_the_job(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, "exit 0"),
            transfer_output_files="never",
            requirements=FAR,
        )
    assert result.state == "held"
    assert "never" in result.reason
    assert "Traceback" not in result.reason


async def test_a_job_sees_neither_its_users_home_nor_the_nodes_state(pool3: Nodes, home: Path) -> None:
    (home / "secret").write_text("SECRET\n")
    far = pool3.state("far")
    text = f"""
cat {home}/secret
ls {far}/trust {far}/spool {far}/keepers {pool3.state("head")}
cat {far}/trust/node.key {far}/instance
ls -a {pool3.place}
kill -0 {pool3.all[2].process.pid} && echo reached
touch /usr/mark /etc/mark && echo wrote
id -u
"""
    async with client(pool3.all[0]) as pool:
        result = await outcome(pool, home, executable=program(home, text), output="out", error="err", requirements=FAR)
    assert result.ok, result
    said = (home / "out").read_text().splitlines()
    as_nobody = support.ROOT and not support.submitter
    uid = pwd.getpwnam("nobody").pw_uid if as_nobody else os.geteuid()
    assert said[-1] == str(uid)
    assert not {"SECRET", "reached", "wrote", "node.key", "instance", home.name} & set(said), said


async def test_a_job_that_shares_its_users_files_does_not_see_the_nodes_state(pool3: Nodes, home: Path) -> None:
    """It may run as the very user that the node runs as."""
    near = pool3.state("near")
    text = f"cat {near}/trust/node.key; ls -A {near}/trust {near}/spool {near}/keepers; echo done"
    async with client(pool3.all[0]) as pool:
        result = await outcome(pool, home, executable=program(home, text), output="out", requirements=NEAR)
    assert result.ok, result
    lines = (home / "out").read_text().splitlines()
    assert [line for line in lines if line and not line.endswith(":")] == ["done"]


async def test_a_job_does_not_see_what_other_jobs_have_on_its_machine(pool3: Nodes, home: Path) -> None:
    """They may run as the same user, all of them as nobody."""
    near = pool3.state("near")
    others = [near / "execute" / "slot99", near / "cached-executables", near / "images"]
    for directory in others:
        directory.mkdir(exist_ok=True)
        directory.chmod(0o777)
        (directory / "theirs").write_text("THEIRS")
    text = (
        f"cat {near}/execute/*/theirs {near}/cached-executables/theirs {near}/images/theirs; ls {near}/execute; "
        "echo mine > $TMPDIR/mine && cat $TMPDIR/mine"
    )
    try:
        async with client(pool3.all[0]) as pool:
            result = await outcome(pool, home, executable=program(home, text), output="out", requirements=NEAR)
    finally:
        for directory in others:
            (directory / "theirs").unlink()
        others[0].rmdir()
    assert result.ok, result
    slot, said = (home / "out").read_text().split()
    assert (slot != "slot99", said) == (True, "mine")


async def test_a_job_that_wants_no_network_has_none(pool3: Nodes, home: Path) -> None:
    script = program(home, "cut -d: -f1 /proc/net/dev | tail -n +3")
    async with client(pool3.all[0]) as pool:
        result = await outcome(pool, home, executable=script, output="out", requirements=FAR, want_job_networking=False)
    assert result.ok, result
    assert (home / "out").read_text().split() == ["lo"]


@pytest.mark.parametrize("where", [NEAR, FAR])
async def test_nothing_is_left_behind_and_nothing_escapes(pool3: Nodes, home: Path, where: str) -> None:
    """A job that makes a daemon, hides files and forbids everybody its directories leaves nothing (A14)."""
    text = """
mkdir -p deep/er; echo x > deep/er/f; chmod 000 deep/er deep
ln -s /etc/passwd link; mkfifo pipe
(setsid sh -c 'trap "" TERM HUP; exec sleep 9753.1' > /dev/null 2>&1 &) &
setsid sleep 9753.2 > /dev/null 2>&1 < /dev/null &
sleep 0.1
"""
    directory = pool3.directory(f"{home.name[:20]}-{where[-4:-1]}")
    async with client(pool3.all[0]) as pool:
        result = await outcome(pool, directory, executable=program(directory, text), output="out", requirements=where)
    assert result.ok, result
    assert not processes_with("9753."), "a process outlived its job"
    with contextlib.suppress(OSError):
        (directory / "deep").chmod(0o700)
    for name in ("near", "far"):
        state = pool3.state(name)
        await until(partial(is_empty, state / "execute"), f"{state}/execute to be empty")
        # The fork server keeps a socket or the like of its own, no job's directory stays.
        assert not [entry for entry in (state / "keepers").iterdir() if entry.is_dir() and entry.name[:1].isdigit()]
    assert (directory / "out").exists()


@pytest.mark.own_pool("the jobs are root's")
@pytest.mark.skipif(not support.ROOT, reason="needs root: only root's jobs run as nobody elsewhere")
async def test_roots_jobs_have_their_files_carried_where_they_run_as_nobody(nodes: Nodes) -> None:
    """The README's three machines as three nodes of root on one machine, which share a file system."""
    head = nodes.start("head", HEAD).ready()
    nodes.start("near", "startd", join=await token(head, "startd"), RUN_AS="owner").ready()
    home = nodes.directory("home")
    home.chmod(0o700)
    async with client(head) as pool:
        await slots(pool, 1)
        (machine,) = await pool.machines()
        here = machine.value("FileSystemDomain")
        for wish in ("Memory > 0", f'FileSystemDomain == "{here}"'):
            (home / "out").unlink(missing_ok=True)
            job = {"executable": program(home, "id -un; pwd"), "output": "out", "requirements": wish}
            result = await outcome(pool, home, **job)
            assert result.ok, (wish, result)
            assert (home / "out").read_text() == "nobody\n/job\n"
        refused = await outcome(pool, home, executable=program(home, "true"), should_transfer_files="NO")
        assert refused.state == "held", refused
        assert "on near it would run as nobody" in refused.reason
