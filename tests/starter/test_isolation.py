"""The parts of its machine that a job can see and reach, on root's node and on a user's (A13, A14)."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC221, ASYNC230, ASYNC240

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from pool.checkpoint.messages_table import Ability as Able
from pool.starter.keeper import NativeKeepers, StartFailed
from pool.starter.show_paths import ShownDirectory
from tests.conftest import GIVEN_KEEPER
from tests.starter.support import alive, family, opened, related, shell, soon, spec, to_end, until

ROOT = os.getuid() == 0
SOMEBODY = 61234


def output(scratch: Path) -> str:
    return (scratch / "out").read_text()


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_processes_are_its_own(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.proc:
        pytest.skip("needs the ability proc")
    script = "echo $$; ls /proc | grep -c '^[0-9]'; kill -9 -1; kill -9 1; readlink /proc/self/ns/ipc"
    end = await to_end(best, shell(scratch, script, isolation=isolation))
    assert end.code == 0
    pid, count, ipc = output(scratch).split()
    assert (pid, int(count) <= 4) == ("2", True)
    assert ipc != os.readlink("/proc/self/ns/ipc")


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_it_holds_no_power_over_the_machine(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.mount:
        pytest.skip("needs the ability mount")
    wanted = shell(
        scratch,
        "grep NoNewPrivs /proc/self/status; mount -t tmpfs none /tmp; umount /proc; umount /tmp; hostname x; "
        f"cat /proc/1/environ /proc/1/mem; ls /proc/1/fd; ls {best._directory.path}; exit 0",
        isolation=isolation,
    )
    assert (await to_end(best, wanted)).code == 0
    assert "NoNewPrivs:\t1" in output(scratch)
    assert "cell." not in output(scratch)
    assert (scratch / "err").read_text().lower().count("permission denied") + (
        scratch / "err"
    ).read_text().lower().count("not permitted") + (scratch / "err").read_text().count("must be superuser") >= 4


async def test_full_sees_the_system_and_its_scratch_only(best: NativeKeepers, place: Path, scratch: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs the ability full")
    (place / "secret").write_text("x")
    home = Path("~").expanduser()
    script = (
        f"ls / /home /root {scratch.parent}; cat {place}/secret; ls {home}; touch /usr/x /etc/x /x /dev/x; "
        "echo kept > mine; echo tmp > /tmp/t; cat /tmp/t /etc/hostname >/dev/null; : > /dev/shm/sem; "
        "head -c 3 /dev/zero | wc -c"
    )
    end = await to_end(best, shell(scratch, script, isolation="full"))
    assert end.code == 0
    text, errors = output(scratch), (scratch / "err").read_text()
    assert "secret" not in text
    assert text.count("scratch") == 1
    assert errors.count("Read-only file system") + errors.count("Permission denied") >= 4
    assert (scratch / "mine").read_text() == "kept\n"
    assert not Path("/tmp/t").exists()
    assert text.endswith("3\n")


async def test_full_keeps_other_jobs_scratch_from_sight(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs the ability full")
    one, two = scratch / "one", scratch / "two"
    one.mkdir()
    two.mkdir()
    other = await best.start(spec(one, "/bin/sleep", "60", id="1.0.0"))
    await to_end(best, shell(two, f"ls {scratch}", id="2.0.0"))
    assert output(two) == "two\n"
    await other.kill()
    await soon(other.ended)


async def test_shared_sees_the_host_but_not_what_is_hidden(best: NativeKeepers, place: Path) -> None:
    if not best.abilities.mount:
        pytest.skip("needs the ability mount")
    state = place / "state"
    scratch = state / "execute" / "dir_1"
    scratch.mkdir(parents=True)
    (state / "key").write_text("secret")
    (place / "data").write_text("shared")
    wanted = shell(
        scratch,
        f"cat {place}/data; ls {state} {state}/execute; cat {state}/key; echo mine > result",
        isolation="shared",
        hidden=(str(state), "/no/such/place"),
    )
    assert (await to_end(best, wanted)).code == 0
    assert output(scratch) == f"shared{state}:\nexecute\n\n{state}/execute:\ndir_1\n"
    assert (scratch / "result").read_text() == "mine\n"


async def test_shared_with_a_tmp_of_its_own(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.mount:
        pytest.skip("needs the ability mount")
    end = await to_end(best, shell(scratch, "ls /tmp; pwd", isolation="shared", private_tmp=True))
    assert end.code == 0
    below = str(scratch).startswith("/tmp/")
    assert output(scratch) == (f"{scratch.parts[2]}\n" if below else "") + f"{scratch}\n"


async def test_shared_keeps_its_files_of_tmp_from_others(best: NativeKeepers, scratch: Path) -> None:
    """By all three names; each job begins with none, also in a keeper that had another."""
    if not best.abilities.mount:
        pytest.skip("needs the ability mount")
    name = f"poolnode-test-{os.getpid()}"
    files = [Path(directory, f"{name}{number}") for number, directory in enumerate(("/tmp", "/var/tmp", "/dev/shm"))]
    script = f"cd /; set -C; {' && '.join(f'echo mine > {path}' for path in files)} && cat /tmp/{name}?"
    for _ in range(2):
        assert (await to_end(best, shell(scratch, script, isolation="shared", private_tmp=True))).code == 0
        assert output(scratch) == "mine\n" * sum(1 for path in files if path.parent.is_dir())
        assert not any(path.exists() for path in files)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
async def test_shared_sees_its_scratch_directory_below_dev_shm(best: NativeKeepers) -> None:
    if not best.abilities.mount:
        pytest.skip("needs the ability mount")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        wanted = shell(Path(directory), "ls /dev/shm; pwd", isolation="shared", private_tmp=True)
        assert (await to_end(best, wanted)).code == 0
        assert output(Path(directory)) == f"{Path(directory).name}\n{directory}\n"


async def test_more_can_be_shown(place: Path, program: Path, scratch: Path) -> None:
    (place / "tools").mkdir()
    (place / "tools" / "t").write_text("tool")
    async with opened(
        place, program, show=[ShownDirectory(str(place / "tools")), ShownDirectory("/no/such")]
    ) as keepers:
        if not keepers.abilities.full:
            pytest.skip("needs the ability full")
        await to_end(keepers, shell(scratch, f"cat {place}/tools/t; echo x > {place}/tools/t"))
        assert output(scratch) == "tool"
        assert (place / "tools" / "t").read_text() == "tool"


async def test_a_shown_directory_may_be_writable_and_for_some_only(place: Path, program: Path, scratch: Path) -> None:
    for name in ("ours", "theirs", "all"):
        (place / name).mkdir()
        (place / name / "t").write_text(name)
    directories = [
        ShownDirectory(str(place / "ours"), writable=True, uids=frozenset({os.getuid()})),
        ShownDirectory(str(place / "theirs"), writable=True, uids=frozenset({SOMEBODY + 7})),
        ShownDirectory(str(place / "all"), writable=True, gids=frozenset({os.getgid()})),
    ]
    async with opened(place, program, show=directories) as keepers:
        if not keepers.abilities.full:
            pytest.skip("needs the ability full")
        script = f"cd {place}; for d in ours theirs all; do cat $d/t 2> /dev/null; echo x > $d/new; done 2> /dev/null"
        await to_end(keepers, shell(scratch, script))
        assert output(scratch) == "oursall"
        assert [(place / name / "new").exists() for name in ("ours", "theirs", "all")] == [True, False, True]


@pytest.mark.parametrize(
    ("without", "says", "silent"),
    [
        (Able.USER, "no user namespaces", "no process"),
        (Able.PID, "no process namespaces", "no user"),
        (Able.MOUNT, "no mount namespaces", "no /proc"),
        (Able.PROC, "no /proc of their own", "no user"),
        (Able.ROOT, "jobs with transferred files see", "no mount"),
    ],
)
async def test_what_is_missing_is_said_and_jobs_run(
    place: Path, program: Path, scratch: Path, without: Able, says: str, silent: str
) -> None:
    async with opened(place, program, without=int(without)) as keepers:
        reduced = keepers.abilities.reduced
        assert any(line.startswith(says) for line in reduced)
        assert not any(line.startswith(silent) for line in reduced)
        assert all("\n" not in line for line in reduced)
        for isolation in ("full", "shared"):
            assert (await to_end(keepers, shell(scratch, "exit 3", isolation=isolation))).code == 3


async def test_another_user_is_refused_without_root_and_obeyed_with(best: NativeKeepers, common: Path) -> None:
    scratch = common
    wanted = shell(scratch, "id -u; id -g; id -G", uid=SOMEBODY, gid=SOMEBODY + 1, groups=(SOMEBODY + 2,))
    if not best.abilities.other_users:
        with pytest.raises(StartFailed, match="only a node that runs as root"):
            await best.start(wanted)
        return
    assert (await to_end(best, wanted)).code == 0
    assert output(scratch).split() == [str(SOMEBODY), str(SOMEBODY + 1), str(SOMEBODY + 1), str(SOMEBODY + 2)]
    assert (scratch / "out").stat().st_uid == SOMEBODY
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(StartFailed, match=r"open stdout .*permission denied"):
        await best.start(shell(scratch, "true", uid=SOMEBODY, gid=SOMEBODY, stdout=str(closed / "out")))


async def test_a_full_disk_is_said_and_loses_no_end(best: NativeKeepers, place: Path, program: Path) -> None:
    small = place / "small"
    small.mkdir()
    if not ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=False).returncode:
        pytest.skip("needs root and a small disk to mount")
    try:
        scratch = small / "scratch"
        scratch.mkdir()
        quiet = {"stdout": "", "stderr": "", "isolation": "shared"}
        async with opened(small, program) as keepers:
            running = await keepers.start(shell(scratch, "read x; exit 8", stdin=_fifo(place), **quiet))
            _fill(small / "filler")
            with pytest.raises(StartFailed, match="no space left") as failed:
                await keepers.start(shell(scratch, "true", id="2.0.0", **quiet))
            assert failed.value.retry
            with open(place / "fifo", "w") as writer:
                writer.write("go\n")
            assert (await soon(running.ended)).code == 8
            again = NativeKeepers(small / "keepers", program)
            await keepers.close(kill=True)
            (found,) = await again.open()
            assert (await soon(found.ended)).code == 8
            await found.forget()
            await again.close(kill=True)
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def _fifo(place: Path) -> str:
    os.mkfifo(place / "fifo")
    os.open(place / "fifo", os.O_RDWR | os.O_CLOEXEC)
    return str(place / "fifo")


def _fill(path: Path) -> None:
    """Write until the disk is full."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"x" * 512)
    finally:
        os.close(fd)


async def test_pseudo_terminals_work(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs the ability full")
    end = await to_end(best, shell(scratch, "command -v script >/dev/null || exit 0; script -qc 'tty' /dev/null"))
    assert end.code == 0
    if output(scratch):
        assert "/dev/pts/" in output(scratch)


async def test_deep_directories(tmp_path: Path, program: Path) -> None:
    deep = tmp_path / "/".join(["d" * 60] * 4)
    scratch = deep / "scratch"
    scratch.mkdir(parents=True)
    async with opened(deep, program) as keepers:
        keeper = await keepers.start(spec(scratch, "/bin/sleep", "60"))
        assert (await keeper.usage()).processes == 1
        await keeper.kill()
        assert (await soon(keeper.ended)).cause == "killed"
    assert related(tmp_path) == []


async def test_memory_of_a_keeper(best: NativeKeepers, scratch: Path) -> None:
    keeper = await best.start(spec(scratch, "/bin/sleep", "60"))
    top = family(keeper.pid)[0]
    assert top.memory_info().rss <= 1 << 20
    await keeper.kill()
    await soon(keeper.ended)
    await until(lambda: not alive([top]))


async def test_all_of_it_as_an_ordinary_user(common: Path, program: Path, repository: Path) -> None:
    """The same tests again, under a user id that has no account, with what such a user may have."""
    setpriv = shutil.which("setpriv")
    python = shutil.which("python3", path="/usr/bin:/bin")
    if setpriv is None or python is None or not ROOT:
        pytest.skip("needs root, setpriv and a Python that every user can run")
    command = [setpriv, "--reuid", str(SOMEBODY), "--regid", str(SOMEBODY), "--clear-groups"]
    tried = subprocess.run(
        [*command, sys.executable, "-c", "import pytest, psutil"], capture_output=True, check=False, cwd="/"
    )
    interpreter = sys.executable if tried.returncode == 0 else None
    paths = os.pathsep.join([str(repository), sysconfig.get_paths()["purelib"]])
    tests = [
        str(repository / "tests" / "starter" / name)
        for name in (
            *("test_jobs.py", "test_isolation.py", "test_deaths.py", "test_idle_keepers.py"),
            *("test_hostile.py", "test_filter.py", "test_network.py"),
        )
    ]
    names = "program_runs_to daemon processes_are no_power full_ shared another_user found lease"
    names += " same_keeper leaves_something cannot_stop get_into terminals covers no_job_needs loopback_is"
    wanted = " or ".join(names.split())
    options = ["-n0", "--basetemp", str(common / "base"), *tests]
    done = subprocess.run(
        [
            *command,
            interpreter or python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            wanted,
            *options,
        ],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": paths,
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(common),
            GIVEN_KEEPER: str(shutil.copy(program, common / "keeper")),
        },
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
