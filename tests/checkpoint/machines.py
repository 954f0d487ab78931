"""Machines for a program to move between, and the way of a program through twenty of them.

Each is a fork server in namespaces of its own: another host name, another mount of the libraries (their files have
other device numbers, as on another disk; where it is asked for they are other files, too), the job's directory under
another path, copied there. Every start makes process, mount and IPC namespaces on top of that. All are of one kernel
and one processor: what differs between those is not tried here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import site
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pool.jobs.network import setup_of
from pool.starter.checkpointing import CheckpointFailed
from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers
from pool.starter.show_paths import ShownDirectory
from pool.starter.spec import SEEN
from tests.starter.support import PATIENCE, family, opened, soon, spec, until

#: An account that every machine has.
NOBODY = 65534
PROGRAMS = Path(__file__).parent / "programs"
MOVES = 20
#: How often a program is moved in the suite whose every move takes long; with TESTS_ALL_MOVES=1 as often as others.
FEW_MOVES = MOVES if os.environ.get("TESTS_ALL_MOVES") else 6
#: Which part of the moves is made before the program has said anything.
EARLY = 0.15
#: Seconds in which the end of a job is reported whose checkpoint failed for that.
TOLD_IN = 5.0
#: Where images are written: how fast this machine's disk is, is not what is tried here.
MEMORY = Path("/dev/shm")

#: The fork server of a machine. `--user` where the tests may not mount; the right to mount ends with it.
FORK_SERVER = """#!/bin/sh
unshare --mount --uts true 2>/dev/null && as= || as="--user --map-current-user --keep-caps"
exec unshare --mount --uts $as sh -c '
hostname {name}
mount -t overlay libraries -o lowerdir={own}:/usr/lib /usr/lib 2>/dev/null || mount --bind /usr/lib /usr/lib
[ -z "$0" ] && exec {keeper} "$@"
exec setpriv --ambient-caps -all --inh-caps -all {keeper} "$@"' "$as" "$@"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """One of them; `others`: each has other libraries, so that what is mapped of them has to be carried."""

    name: str
    keepers: NativeKeepers
    scratch: Path
    others: bool


@contextlib.asynccontextmanager
async def machines(place: Path, keeper: Path, *, count: int = 3, others: bool = False) -> AsyncIterator[list[Machine]]:
    """That many machines, with nothing in their scratch directories; with `others`, each has other libraries."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for number in range(count):
            name = f"machine{number}"
            home = place / name
            (home / "own").mkdir(parents=True)
            if others:
                libraries(home / "own", b"\0" * (number + 1))
            native = home / "nursery"
            native.write_text(FORK_SERVER.format(name=name, own=home / "own", keeper=keeper))
            native.chmod(0o755)
            shown = [ShownDirectory(path) for path in installed()]
            keepers = await stack.enter_async_context(opened(home, native, show=shown))
            made.append(Machine(name, keepers, home / f"scratch{number}", others))
        yield made


def libraries(directory: Path, tail: bytes) -> None:
    """The C library and others that most programs have, as files of another length: to a loader they are the same."""
    for source in Path("/usr/lib").glob("*-linux-gnu/lib[cmz].so.[0-9]"):
        target = directory / source.parent.name / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes() + tail)
        target.chmod(0o755)


def installed() -> list[str]:
    """Where the Python of the tests and its packages lie, when not among the system's own directories."""
    packages = (path for path in (*site.getsitepackages(), *sys.path) if "site-packages" in path)
    paths = {sys.prefix, sys.base_prefix, *packages}
    return sorted(path for path in paths if Path(path).is_dir() and not path.startswith("/usr"))


@dataclass(frozen=True, slots=True)
class Work:
    """A program and what it needs.

    Attributes:
        argv: the command, run in its directory.
        files: of `programs/`, copied into its directory, or made there by `prepare`.
        commands: run in the directory before all (compilers).
        appends: it does no more to its files than append to them: it may also lose its machine some time after a
            checkpoint, which then it does half of the times.
        private: it has a network of its own, and its connections move with it.
        ordinary: it does not run as root; where the tests do, it runs as nobody.
        shared: its directory is the same one on every machine, as on a file server: files keep their inode numbers.
    """

    argv: tuple[str, ...]
    files: tuple[str, ...] = ()
    commands: tuple[Sequence[str], ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    appends: bool = False
    shared: bool = False
    private: bool = False
    ordinary: bool = False

    def spec(self, scratch: Path) -> KeeperSpec:
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", **self.env}
        out, err = f"{SEEN}/out", f"{SEEN}/err"
        # Nice, since whoever watches it comes first.
        network: dict[str, Any] = {"network": "private", "network_setup": setup_of(0, ["here"])} if self.private else {}
        account: dict[str, Any] = {"uid": NOBODY, "gid": NOBODY} if self._as_nobody else {}
        files = {"cwd": SEEN, "stdout": out, "stderr": err}
        return spec(scratch, *self.argv, env=env, fixed=True, nice=10, **files, **account, **network)

    @property
    def _as_nobody(self) -> bool:
        return self.ordinary and os.geteuid() == 0

    def prepare(self, scratch: Path) -> None:
        scratch.mkdir()
        for name in self.files:
            (shutil.copytree if (PROGRAMS / name).is_dir() else shutil.copy)(PROGRAMS / name, scratch / name)
        for command in self.commands:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True)
        if self._as_nobody:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", scratch], check=True)


def needs(program: str, package: str) -> None:
    """Skips a test on a machine of somebody who has not that Debian package. `.ci/run` installs it."""
    if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"needs the Debian package {package}")


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below it."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def lines(scratch: Path) -> int:
    """How far a program is that says so by a line on its standard output."""
    out = scratch / "out"
    return out.read_bytes().count(b"\n") if out.exists() else 0


def carry(source: Path, target: Path) -> None:
    """All files of a directory copied, as to another machine, and the first ones gone."""
    subprocess.run(["cp", "-a", "--", source, target], check=True)
    shutil.rmtree(source)


async def undisturbed(machine: Machine, work: Work) -> dict[str, bytes]:
    """The program's output when nothing happens to it."""
    await asyncio.to_thread(work.prepare, machine.scratch)
    left = await _finish(await soon(machine.keepers.start(work.spec(machine.scratch))), machine)
    shutil.rmtree(machine.scratch)
    return left


class Ended(Exception):
    """The program came to its end before it was moved as often as it was to be."""


async def reaches(keeper: NativeKeeper, here: Machine, aim: int, progress: Callable[[Path], int]) -> None:
    """Waits until it has come so far.

    Raises:
        Ended: it will not come that far any more.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while progress(here.scratch) < aim:
        if keeper.ended.done():
            raise Ended
        assert asyncio.get_running_loop().time() < deadline, f"it came to {progress(here.scratch)} of {aim}"
        await asyncio.sleep(0.002)


async def _move(keeper: NativeKeeper, here: Machine, there: Machine, work: Work, *, stop: bool = True) -> NativeKeeper:
    """The program on the other machine, from its last checkpoint here or, without `stop`, from one after which it ran
    on for a while.

    Raises:
        Ended: it had no time for that.
    """
    images = Path(MEMORY if os.access(MEMORY, os.W_OK) else here.scratch.parent)
    image = images / f"poolnode-{os.getpid()}-{here.scratch.parent.name}"
    try:
        try:
            making = asyncio.ensure_future(keeper.checkpoint(image, stop=stop, carry=here.others))
            if not stop:
                await asyncio.sleep(0.01)
                await keeper.suspend()  # not to be at its end before the image is written
            report = await soon(making)
        except CheckpointFailed:
            await asyncio.wait([keeper.ended], timeout=TOLD_IN)  # that may be reported a moment later
            if keeper.ended.done():
                raise Ended from None
            raise
        assert not report.refused, report.refused
        if not stop:
            await keeper.kill()
        await soon(keeper.ended)
        await keeper.forget()
        await asyncio.to_thread(here.scratch.rename if work.shared else partial(carry, here.scratch), there.scratch)
        started: NativeKeeper = await soon(there.keepers.start(work.spec(there.scratch), image=image))
        return started
    finally:
        shutil.rmtree(image, ignore_errors=True)


async def _finish(keeper: NativeKeeper, here: Machine) -> dict[str, bytes]:
    """Its output."""
    end = await soon(keeper.ended)
    await keeper.forget()
    left = contents(here.scratch)
    assert (end.code, end.cause) == (0, "exit"), left.get("err")
    return left


def differences(left: dict[str, bytes], expected: dict[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
    """The ends of the files that are not as expected: both."""
    names = sorted(name for name in left.keys() | expected.keys() if left.get(name) != expected.get(name))
    return {name: (left.get(name, b"none")[-1000:], expected.get(name, b"none")[-1000:]) for name in names}


async def travel(
    around: Sequence[Machine],
    work: Work,
    seed: int,
    *,
    moves: int = MOVES,
    progress: Callable[[Path], int] = lines,
) -> None:
    """Runs the program to its end, moved that often at moments that `seed` draws: some as it begins, the others where
    its progress has come to some part of what is left. It leaves what it leaves undisturbed.

    On a machine that others keep busy it may come to its end between two looks at it: then it is run again for the
    moves that are left.
    """
    chance = random.Random(seed)
    expected = await undisturbed(around[0], work)
    whole = progress_of(expected, around[0], progress)
    moved = 0
    while moved < moves:
        before, here = moved, around[0]
        await asyncio.to_thread(work.prepare, here.scratch)
        keeper = await soon(here.keepers.start(work.spec(here.scratch)))
        with contextlib.suppress(Ended):
            for number in range(moves - before):
                if number >= round(EARLY * moves):
                    now = progress(here.scratch)
                    ahead = max(0, whole * 7 // 10 - now) / (moves - moved)
                    await reaches(keeper, here, now + round(chance.uniform(0, 2 * ahead)), progress)
                await asyncio.sleep(chance.uniform(0, 0.01))
                there = around[(number + 1) % len(around)]
                stop = number % 2 == 0 or not work.appends
                keeper, here = await _move(keeper, here, there, work, stop=stop), there
                moved += 1
        left = await _finish(keeper, here)
        assert left == expected, differences(left, expected)
        assert moved > before
        shutil.rmtree(here.scratch)


async def waiting(
    around: Sequence[Machine], work: Work, calls: Container[int], release: Callable[[NativeKeeper, Path], object]
) -> None:
    """Moves the program MOVES times, each time when a thread of it is inside one of these system calls. Then it is
    released, and ends as it does when it was not moved.
    """

    async def ends(moves: int) -> dict[str, bytes]:
        here = around[0]
        await asyncio.to_thread(work.prepare, here.scratch)
        keeper = await soon(here.keepers.start(work.spec(here.scratch)))
        for there in itertools.islice(itertools.cycle((*around[1:], around[0])), moves):
            await until(partial(inside, keeper, calls))
            keeper, here = await _move(keeper, here, there, work), there
        await until(partial(inside, keeper, calls))
        release(keeper, here.scratch)
        left = await _finish(keeper, here)
        shutil.rmtree(here.scratch)
        return left

    assert await ends(MOVES) == await ends(0)


def inside(keeper: NativeKeeper, calls: Container[int]) -> bool:
    """Whether a thread of the job is inside one of these system calls."""
    for process in family(keeper.pid)[1:]:
        for path in Path(f"/proc/{process.pid}/task").glob("*/syscall"):
            with contextlib.suppress(OSError):
                first = path.read_text().split()[0]
                if first.isdigit() and int(first) in calls:
                    return True
    return False


def progress_of(left: dict[str, bytes], machine: Machine, progress: Callable[[Path], int]) -> int:
    """The progress of a whole run, from what it left."""
    machine.scratch.mkdir()
    try:
        for name, content in left.items():
            (machine.scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (machine.scratch / name).write_bytes(content)
        return progress(machine.scratch)
    finally:
        shutil.rmtree(machine.scratch)
