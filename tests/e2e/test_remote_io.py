"""Jobs that work on their owner's files from another machine: two nodes, and a directory that only the first has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.client import Pool
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, outcome, program, slots, token
from tests.ordinary_user import as_root
from tests.starter.support import PYTHON, until

FAR, NEAR = 'Machine == "far"', 'Machine == "near"'
HOSTNAME = Path("/etc/hostname").read_text()


@pytest.fixture(scope="module")
def pair(whose_pool: object) -> Iterator[Nodes]:
    """`all[0]` is where jobs are submitted. `near` runs them as who runs the tests, `far` root's as nobody."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        join, away = await token(head, "startd"), nodes.elsewhere()
        nodes.start("far", "startd", join=join, machine=away, FILESYSTEM_DOMAIN="elsewhere").ready()
        join, run_as = await token(head, "startd"), "owner" if support.submitter else "node"
        nodes.start("near", "startd", join=join, FILESYSTEM_DOMAIN="nobody knows", RUN_AS=run_as).ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pair: Nodes, request: pytest.FixtureRequest) -> Path:
    """The directory the test's user works in."""
    return pair.home(support.directory_name(request))


async def test_a_job_works_on_files_that_its_machine_does_not_have(pair: Nodes, home: Path) -> None:
    (home / "in").write_text("hello\n")
    (home / "data").mkdir(mode=0o777)
    (home / "data/numbers").write_text("".join(f"{number}\n" for number in range(10000)))
    text = f"""
pwd; cat
sort -rn {home}/data/numbers | head -2
cd data && mkdir new && echo made > new/file && mv new/file moved && rmdir new
echo more >> numbers
ls
"""
    async with client(pair.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, text),
            input="in",
            output="out",
            error="err",
            remote_io="on",
            requirements=FAR,
        )
    assert (result.state, result.exit_code) == ("completed", 0), result.reason
    assert (home / "err").read_text() == ""
    assert (home / "out").read_text() == f"{home}\nhello\n9999\n9998\nmoved\nnumbers\n"
    assert (home / "data/moved").read_text() == "made\n"
    assert (home / "data/numbers").read_text().endswith("9999\nmore\n")
    assert sorted(os.listdir(home / "data")) == ["moved", "numbers"]


async def test_a_job_finds_the_directories_that_it_names_and_those_that_it_asks_for(pair: Nodes, home: Path) -> None:
    """By default its initial directory, its program's for reading; more with `remote_io_trees`."""
    for name in ("work", "bin", "more", "secret"):
        (home / name).mkdir()
        (home / name).chmod(0o777)
        (home / name / "f").write_text(f"{name}\n")
    text = f"""
cat {home}/work/f {home}/bin/f {home}/more/f {home}/secret/f
echo x > {home}/bin/new; echo x > {home}/more/new; echo x > {home}/work/new
"""
    commands = {"executable": program(home / "bin", text), "output": "out", "error": "err", "log": "log"}
    async with client(pair.all[0]) as pool:
        for trees, seen in (({}, "work bin"), ({"remote_io_trees": "., ../more:ro, ../bin:ro"}, "work bin more")):
            result = await outcome(pool, home / "work", **commands, **trees, remote_io="on", requirements=FAR)
            assert result.state == "completed", result.reason
            assert (home / "work/out").read_text().split() == seen.split()
    errors = (home / "work/err").read_text()
    assert errors.count("Read-only file system") == 2
    assert f"{home}/secret/f: No such file or directory" in errors
    assert [name for name in ("work", "bin", "more") if "new" in os.listdir(home / name)] == ["work"]
    assert f"{home}/bin, {home}/more, {home}/work by " in (home / "work/log").read_text()


async def test_a_job_reads_a_static_tree_and_goes_on_there_after_it_has_left(pair: Nodes, home: Path) -> None:
    for name in ("work", "still"):
        (home / name).mkdir()
        (home / name).chmod(0o777)
    (home / "still/f").write_text("one\ntwo\nthree\n")
    text = f"""
exec 3<{home}/still/f
read a <&3
echo x >{home}/still/new
: >started
until [ -e go ]; do sleep 0.05; done
read b <&3
echo $a $b; cat {home}/still/f
"""
    commands = {"executable": program(home / "work", text), "output": "out", "error": "err", "log": "log"}
    commands |= {"remote_io": "on", "remote_io_trees": "., ../still:static", "requirements": FAR}
    async with client(pair.all[0]) as pool:
        cluster = await pool.submit(commands, iwd=str(home / "work"))
        await until((home / "work/started").exists)
        (home / "still/f").write_text("one\ntwo\nfour\n")
        await cluster.vacate()
        (home / "work/go").touch()
        (result,) = await cluster.wait(60, until_stuck=True)
    log = (home / "work/log").read_text()
    assert result.state == "completed", log
    assert (home / "work/out").read_text() == "one two\none\ntwo\nfour\n"
    assert "Read-only file system" in (home / "work/err").read_text()
    assert os.listdir(home / "still") == ["f"]
    how = f"static: {home}/still: locks there" if "by fuse" in log else "locks on them bind its own processes only"
    assert how in log


#: Reads and writes the same file: adds a line for each step, replaces a number in place, makes and removes names, and
#: takes what it reads into what it writes next, so that anything done twice or lost shows in the end.
WALK = r"""
import os, sys, time
here, steps = sys.argv[1], int(sys.argv[2])
os.chdir(here)
total = 0
for step in range(steps):
    with open("log", "a+") as log:
        log.seek(0)
        total = total * 31 % 1000003 + len(log.read())
        log.write(f"{step} {total}\n")
    with open("place", "r+b") as place:
        place.seek(8 * (step % 10))
        place.write(b"%08d" % step)
    open(f"step.{step}", "w").write(str(total))
    if step:
        os.rename(f"step.{step - 1}", "last")
    time.sleep(0.01)
"""
STEPS = 150


def prepared(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    (directory / "log").write_text("begin\n")
    (directory / "place").write_bytes(b"-" * 80)
    for path in directory.iterdir():
        path.chmod(0o666)
    return directory


def undisturbed(home: Path) -> dict[str, bytes]:
    """The output of the walk in a terminal on the submit side."""
    here = prepared(home / "alone")
    subprocess.run([PYTHON, "-c", WALK, str(here), str(STEPS)], check=True)
    return {path.name: path.read_bytes() for path in here.iterdir()}


async def walk(pool: Pool, home: Path, **more: Any) -> Any:
    (home / "walk.py").write_text(WALK)
    commands = {
        "executable": PYTHON,
        "arguments": f"walk.py {prepared(home / 'walked')} {STEPS}",
        "error": "err",
        "log": "joblog",
        "remote_io": "on",
        "requirements": FAR,
        **more,
    }
    return await pool.submit(commands, iwd=str(home))


def walked(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "walked").iterdir()}


async def under_way(home: Path, steps: int = 20) -> None:
    path = home / "walked" / "log"
    await support.until(lambda: path.read_text().count("\n") > steps, "the job's first steps")


def home_process() -> psutil.Process:
    (found,) = support.processes_with("pool.remoteio.file_server")
    return found


async def finished(cluster: Any, home: Path) -> None:
    try:
        (result,) = await cluster.wait(40, until_stuck=True)
    except TimeoutError as error:
        error.add_note(
            "\n".join([(home / "joblog").read_text(), *map(str, await cluster.ads()), support.family_in_words()])
        )
        raise
    assert (result.state, result.exit_code) == ("completed", 0), (result, (home / "joblog").read_text())
    assert (home / "err").read_text() == ""
    assert walked(home) == undisturbed(home)


async def test_a_home_that_is_killed_in_the_middle_of_writing_is_gone_on_from(pair: Nodes, home: Path) -> None:
    async with client(pair.all[0]) as pool:
        cluster = await walk(pool, home)
        for steps in (10, 40, 70):
            await under_way(home, steps)
            home_process().kill()
        await finished(cluster, home)


async def test_a_job_waits_while_its_submit_machine_is_cut_off(pair: Nodes, home: Path) -> None:
    head = pair.all[0]
    async with client(head) as pool:
        cluster = await walk(pool, home)
        await under_way(home)
        for pid in (head.process.pid, home_process().pid):
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(1.5)
        for process in psutil.Process(head.process.pid).children(recursive=True):
            process.resume()
        os.kill(head.process.pid, signal.SIGCONT)
        await finished(cluster, home)


SAVES_ITSELF = """
import os, sys
if os.path.exists("saved"):
    print("goes on from", open("saved").read())
else:
    open("saved", "w").write("here")
    sys.exit(85)
"""


async def test_a_job_that_saves_itself_works_on_its_files_afterwards(pair: Nodes, home: Path) -> None:
    """Its program is started once more on the same machine, with a new connection to them."""
    async with client(pair.all[0]) as pool:
        (home / "saves").write_text(SAVES_ITSELF)
        commands = {
            "executable": PYTHON,
            "arguments": "saves",
            "output": "out",
            "log": "joblog",
            "remote_io": "on",
            "requirements": FAR,
            "checkpoint_exit_code": "85",
        }
        cluster = await pool.submit(commands, iwd=str(home))
        (result,) = await cluster.wait(40, until_stuck=True)
    assert (result.state, result.exit_code) == ("completed", 0), (result, (home / "joblog").read_text())
    assert (home / "out").read_text() == "goes on from here\n"


async def test_a_job_that_begins_again_finds_its_files_as_they_were(pair: Nodes, home: Path) -> None:
    async with client(pair.all[0]) as pool:
        cluster = await walk(pool, home, checkpoint="off")
        await under_way(home)
        await cluster.vacate()
        await finished(cluster, home)
    assert (home / "joblog").read_text().count("Job executing on host") == 2


async def test_a_job_gets_its_owners_errors(pair: Nodes, home: Path) -> None:
    (home / "readonly").write_text("r")
    (home / "readonly").chmod(0o444)
    (home / "out-of-it").symlink_to("/etc/hostname")
    (home / "nowhere").symlink_to("missing")
    text = """
cat missing nowhere
echo x > missing/file
mkdir data && mkdir data
rmdir /etc
cat out-of-it > there
ls -a .poolnode-undo.1 2>&1
cat SPOOL/*
"""
    text = text.replace("SPOOL", str(pair.state("head") / "spool"))
    async with client(pair.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, text),
            output="out",
            error="err",
            remote_io="on",
            remote_io_trees=str(home.parent),
            requirements=FAR,
        )
    assert result.state == "completed"
    errors = (home / "err").read_text()
    assert errors.count("No such file or directory") >= 2
    assert "Directory nonexistent" in errors or "cannot create missing/file" in errors
    assert "File exists" in errors
    assert "Read-only file system" in errors or "Device or resource busy" in errors or "Permission" in errors
    # The node's own state is never shown: closed where it lies in a tree, otherwise not there at all.
    (spool,) = [line for line in errors.splitlines() if str(pair.state("head") / "spool") in line]
    assert spool.endswith(("Permission denied", "No such file or directory"))
    # A link that leads to the system leads to that of the machine the job is on, and no further.
    assert (home / "there").read_text() == HOSTNAME


async def test_what_both_machines_see_is_opened_directly(pair: Nodes, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="remote-", dir="/tmp") as place:
        (Path(place) / "f").write_text("seen\n")
        os.chmod(place, 0o777)
        async with client(pair.all[0]) as pool:
            for where in (NEAR, FAR):
                text = f"cat f; grep -c ' {place} fuse' /proc/self/mounts; df . | tail -1 >&2"
                result = await outcome(
                    pool,
                    Path(place),
                    executable=program(Path(place), text),
                    output="out",
                    error="err",
                    log="log",
                    remote_io="on",
                    requirements=where,
                )
                assert result.state == "completed", result
                log = (Path(place) / "log").read_text()
                if where == NEAR or not support.ROOT or support.submitter:
                    assert f"its owner's files: {place} directly" in log
                    assert (Path(place) / "out").read_text() == "seen\n0\n"
                else:  # nobody there is a stranger to these files
                    assert f"{place}" in log.rpartition("by fuse")[0]
                    assert (Path(place) / "out").read_text() == "seen\n1\n"
        assert not [name for name in os.listdir(place) if name.startswith(".")]


async def test_a_job_may_not_do_what_its_owner_may_not(pair: Nodes, home: Path) -> None:
    """A directory that may not be entered, a tree that is not shown."""
    (home / "closed").mkdir()
    (home / "closed/f").write_text("f")
    (home / "closed").chmod(0)
    async with client(pair.all[0]) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, "cat closed/f; cat /root/.profile; echo over"),
            output="out",
            error="err",
            remote_io="on",
            requirements=FAR,
        )
    assert result.state == "completed"
    assert (home / "out").read_text().endswith("over\n")
    if not support.ROOT:
        assert (home / "err").read_text().count("Permission denied") == 2


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[None]:
    at.mkdir()
    with as_root():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", str(at)], check=True)
    try:
        yield
    finally:
        with as_root():
            subprocess.run(["umount", "-l", str(at)], check=True)


if support.ROOT:

    async def test_a_full_disk_at_home_is_the_jobs_own_error(pair: Nodes, home: Path) -> None:
        text = (
            "head -c 4000000 /dev/zero > small/big || echo refused\nrm small/big; echo fits > small/now; cat small/now"
        )
        commands = {"executable": program(home, text), "output": "out", "error": "err", "remote_io": "on"}
        with small_disk(home / "small"):
            async with client(pair.all[0]) as pool:
                result = await outcome(pool, home, **commands, requirements=FAR)
        assert result.state == "completed"
        assert "No space left on device" in (home / "err").read_text()
        assert (home / "out").read_text() == "refused\nfits\n"


async def test_who_is_told_that_a_job_is_over_finds_nothing_hidden_of_it(pair: Nodes, home: Path) -> None:
    (home / "data").mkdir(mode=0o777)
    for number in range(200):
        (home / "data" / str(number)).write_text("before")
    async with client(pair.all[0]) as pool:
        text = "cd data; for i in *; do echo after > new; mv new $i; done"
        result = await outcome(
            pool, home, executable=program(home, text), error="err", remote_io="on", requirements=FAR
        )
        left = os.listdir(home / "data")
    assert (result.state, (home / "err").read_text()) == ("completed", "")
    assert sorted(left, key=int) == [str(number) for number in range(200)]


async def test_a_job_that_dies_after_a_checkpoint_goes_on_with_its_files_of_that_moment(
    pair: Nodes, home: Path
) -> None:
    async with client(pair.all[0]) as pool:
        cluster = await walk(pool, home)
        await under_way(home, 30)
        acted = await cluster.checkpoint()
        assert acted.done == 1, acted
        await under_way(home, 70)
        job = support.processes_with("walk.py")[0]
        job.parents()[0].kill()  # its keeper: the machine has lost it, and all it did since
        await finished(cluster, home)
    log = (home / "joblog").read_text()
    assert log.count("Job executing on host") == 2
    assert "checkpoint" in log


async def test_a_job_that_leaves_goes_on_elsewhere_with_its_files(pair: Nodes, home: Path) -> None:
    async with client(pair.all[0]) as pool:
        cluster = await walk(pool, home)
        await under_way(home, 30)
        await cluster.vacate()
        await finished(cluster, home)
        assert (await cluster.results())[0].wall > 0


async def test_a_job_works_on_while_both_its_nodes_are_started_anew() -> None:
    """The execute node finds its keeper, and that its submit side; then the submit node finds both."""
    with support.nodes() as nodes:
        home = nodes.directory("home")
        head = nodes.start("head", HEAD).ready()
        far = nodes.start("far", "startd", join=await token(head, "startd"), FILESYSTEM_DOMAIN="elsewhere").ready()
        async with client(head) as pool:
            await slots(pool, 1)
            cluster = (await walk(pool, home)).cluster
            await under_way(home)
        far.crash()
        nodes.start("far", "startd", FILESYSTEM_DOMAIN="elsewhere").said("a running job was found again")
        await under_way(home, 60)
        head.crash()
        again = nodes.start("head", HEAD).ready()
        async with client(again) as pool:
            await finished(pool.cluster(cluster, 1), home)
            assert (await pool.job(cluster).ad()).value("NumJobStarts") == 1
