"""Jobs that mean harm: to the machine, to the node, to other jobs, to what comes after them."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.safe_directory import SafeDirectory
from pool.starter import native, staging
from pool.starter.keeper import NativeKeepers
from tests.starter.support import PYTHON, alive, family, opened, shell, soon, spec, to_end, until

ROOT = os.getuid() == 0
SOMEBODY = 61234


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory that every user may look into."""
    path = Path(tempfile.mkdtemp(prefix="poolnode-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


async def test_a_job_that_stops_its_keeper_is_killed(
    keepers: NativeKeepers, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can only where there is no process namespace."""
    monkeypatch.setattr(native, "INSIST_AFTER", 0.3)
    wanted = shell(scratch, "sleep 0.2; kill -STOP $PPID; echo done; sleep 60")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: (scratch / "out").read_text() == "done\n")
    processes = family(keeper.pid)
    await keeper.kill()
    assert (await soon(keeper.ended)).cause == "killed"
    await until(lambda: not alive(processes))


async def test_a_start_that_is_never_told_of_ends_with_its_lease(
    keepers: NativeKeepers, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "INSIST_AFTER", 0.3)
    first = await keepers.start(spec(scratch, "/bin/sleep", "60"))
    assert keepers._fork_server.pid
    os.mkfifo(scratch / "fifo")
    wanted = spec(scratch, "/bin/true", id="2.0.0", stdin=str(scratch / "fifo"), lease_seconds=0.5)
    starting = asyncio.ensure_future(keepers.start(wanted))
    await until(lambda: (cell := keepers._directory.read(1)) is not None and cell.pid != 0)
    cell = keepers._directory.read(1)
    assert cell is not None
    os.kill(cell.pid, signal.SIGSTOP)
    keeper = await soon(starting)
    assert (await soon(keeper.ended)).cause == "killed"
    await first.kill()
    await soon(first.ended)


async def test_a_job_cannot_get_into_its_keeper(keepers: NativeKeepers, scratch: Path) -> None:
    """Where keeper and job have one user id, without a process namespace too."""
    attack = (
        "import ctypes, os; l = ctypes.CDLL(None, use_errno=True); p = os.getppid(); "
        "print(l.ptrace(16, p, 0, 0))\n"
        "for name in ('mem', 'environ', 'maps', 'fd'):\n"
        "  try: os.readlink(f'/proc/{p}/fd/3') if name == 'fd' else open(f'/proc/{p}/{name}', 'rb').read(1)\n"
        "  except OSError: continue\n"
        "  print(name)\n"
    )
    end = await to_end(keepers, spec(scratch, PYTHON, "-c", attack, isolation="shared"))
    assert end.code == 0, (scratch / "err").read_text()
    assert (scratch / "out").read_text() == "-1\n"


async def test_a_job_that_wants_to_be_traced_goes_on(keepers: NativeKeepers, scratch: Path) -> None:
    """Its parent is the keeper, which took its stop for its end: return value 0."""
    program = (
        "import ctypes, os, signal, sys; l = ctypes.CDLL(None); print(l.ptrace(0, 0, 0, 0), flush=True)\n"
        "if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('signal', flush=True))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "sys.exit(7)\n"
    )
    (scratch / "program.py").write_text(program)
    for isolation in ("shared", "full"):
        path = str(scratch / "program.py")
        end = await to_end(keepers, spec(scratch, PYTHON, path, isolation=isolation, id=f"1.0.{len(isolation)}"))
        assert (end.cause, end.code, end.signal) == ("exit", 7, None), (scratch / "err").read_text()
        assert (scratch / "out").read_text().split() == ["0", "0", "signal"]


async def test_terminals_of_one_job_are_not_anothers(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs the ability full")
    one, two = scratch / "one", scratch / "two"
    one.mkdir()
    two.mkdir()
    holder = await best.start(shell(one, "exec 9<>/dev/ptmx; ls /dev/pts; sleep 60", id="1.0.0"))
    await until(lambda: (one / "out").read_text() != "")
    assert "0" in (one / "out").read_text().split()
    await to_end(best, shell(two, "ls /dev/pts", id="2.0.0"))
    assert (two / "out").read_text().split() == ["ptmx"]
    await holder.kill()
    await soon(holder.ended)


async def test_root_in_full_cannot_set_the_kernel(best: NativeKeepers, scratch: Path) -> None:
    """User id 0 owns the files by which it is set, capabilities or not."""
    if not best.abilities.full or not ROOT:
        pytest.skip("needs the ability full and root")
    same = Path("/proc/sys/vm/swappiness").read_text().strip()
    script = (
        f"echo {same} > /proc/sys/vm/swappiness && echo set; true > /proc/sysrq-trigger && echo opened; "
        "cat /proc/sys/vm/swappiness; exit 0"
    )
    await to_end(best, shell(scratch, script))
    assert (scratch / "out").read_text().split() == [same]


async def test_covers_keep_nothing(best: NativeKeepers, place: Path, scratch: Path) -> None:
    """The mount that hides a directory is no place to leave something in for the claim's next job."""
    if not best.abilities.mount:
        pytest.skip("needs the ability mount")
    (place / "state").mkdir()
    kind = {"isolation": "shared", "hidden": (str(place / "state"),)}
    for directory in (place / "state", best._directory.path):
        await to_end(best, shell(scratch, f"echo x > {directory}/left", **kind))
        await to_end(best, shell(scratch, f"cat {directory}/left", **kind))
        assert (scratch / "out").read_text() == ""


async def test_daemons_in_namespaces_of_their_own_do_not_escape(best: NativeKeepers, scratch: Path) -> None:
    if shutil.which("unshare") is None or not best.abilities.pid:
        pytest.skip("needs unshare and process namespaces")
    script = "unshare -U -p -f --kill-child=SIGCONT setsid nohup sleep 60 >/dev/null 2>&1 & sleep 0.2; exit 0"
    keeper = await best.start(shell(scratch, script, isolation="shared"))
    processes = family(keeper.pid)
    await soon(keeper.ended)
    await until(lambda: not [p for p in alive(processes) if p.pid != keeper.pid])


async def test_a_fork_bomb_ends_with_its_job(best: NativeKeepers, place: Path, scratch: Path) -> None:
    """Bounded, so that a defect of the keeper does not bring this machine down."""
    if not best.abilities.pid:
        pytest.skip("needs the ability pid")
    bomb = "b() { [ $1 -gt 0 ] || exec sleep 60; b $(($1 - 1)) & b $(($1 - 1)) & wait; }; b 6"
    keeper = await best.start(shell(scratch, bomb, lease_seconds=30.0))
    await until(lambda: len(family(keeper.pid)) > 60)
    processes = family(keeper.pid)
    await keeper.kill()
    await soon(keeper.ended)
    await until(lambda: not alive(processes))


async def test_processes_of_another_user_are_counted(best: NativeKeepers, common: Path) -> None:
    if not best.abilities.other_users:
        pytest.skip("needs the ability other_users")
    scratch = common / "scratch"
    scratch.mkdir()
    alone = SOMEBODY + 5  # the kernel counts a user's processes on the whole machine, those of other tests too
    os.chown(scratch, alone, alone)
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; echo never"
    wanted = shell(scratch, script, uid=alone, gid=alone, groups=(), processes=5)
    end = await to_end(best, wanted)
    assert end.code != 0
    assert (scratch / "out").read_text() == ""
    assert "fork" in (scratch / "err").read_text().lower()


def test_a_file_of_somebody_else_is_no_output(tmp_path: Path) -> None:
    """A hard link may lead to a file that only the node can read."""
    (tmp_path / "secret").write_text("x")
    os.link(tmp_path / "secret", tmp_path / "output")
    with SafeDirectory(tmp_path, (os.getuid(), os.getgid())) as safe, staging.open_output(safe, "output") as handle:
        assert handle.read() == b"x"
    stranger = SafeDirectory(tmp_path, (os.getuid() + 1, os.getgid()))
    with stranger as safe, pytest.raises(staging.StagingError, match="not the job's own"):
        staging.open_output(safe, "output")


async def test_a_disk_filled_by_a_job_loses_no_end(place: Path, program: Path, scratch: Path) -> None:
    """In a /tmp of its own, which is memory: it ends, and nothing of it stays."""
    async with opened(place, program) as keepers:
        if not keepers.abilities.full:
            pytest.skip("needs the ability full")
        wanted = shell(scratch, "head -c 64m /dev/zero > /tmp/full; echo $?; df -k /tmp | tail -1", memory=32 << 20)
        end = await to_end(keepers, wanted)
        assert end.cause in ("exit", "killed", "signal")
        end = await to_end(keepers, shell(scratch, "ls /tmp | wc -l"))
        assert end.code == 0
