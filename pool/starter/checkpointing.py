"""Checkpoints of running jobs: the starter asks for them here and gets their outcome. Other modules decide where images
are kept (pool.images) and when one is made (pool.policy.checkpoints).

An image is a directory that the keeper writes: `meta` and `pages` (pool/checkpoint/image/image.h). It is written
aside and renamed when it is whole and on disk, so that a directory of its name is always a whole one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pool.checkpoint.messages_table import CONSTANTS, CheckpointFlag, Verb
from pool.starter.messages import Report
from pool.starter.spec import KeeperError

if TYPE_CHECKING:
    from pool.starter.handle import NativeKeeper
    from pool.starter.native import NativeKeepers

#: Hears that a job runs on while its image is written.
LetGo = Callable[[frozenset[int]], None]
DONE, REFUSED = 1, 2
STOP, EXAMINE, LOOSE, CARRY = (int(how) for how in CheckpointFlag)
#: The contents of memory, in one file or two; those of images before it are named with a number behind
#: (pool/checkpoint/image/image.h).
PAGES, MORE, SOURCES = "pages", "pages_2", 8
#: The rest of an image: its tables, and what it carries of programs and libraries.
META, CARRIED = "meta", "carried"
MARK_SHIFT = CONSTANTS["MARK_SHIFT"][0]
#: The suffix of the name of an image that is not whole yet.
ASIDE = ".aside"


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """How a checkpoint went.

    Attributes:
        bytes: of memory in the image.
        seconds: from the request to the image on disk.
        standstill: seconds for which the job did not run.
        refused: what cannot be saved, a line each ('descriptor 5 of process 2 is a TCP connection to
            192.0.2.7:5432'); then there is no image, and the job runs on.
        processes: how many the image holds.
        held: of the job's pipes that lead to other machines, those whose ends a process in the image holds, by index.
    """

    bytes: int
    seconds: float
    standstill: float
    refused: tuple[str, ...] = ()
    processes: int = 0
    held: frozenset[int] = frozenset()


class CheckpointFailed(KeeperError):
    """The job could be saved, but was not: no space, its end, the keeper's. The job is as it was."""


async def examine(keepers: NativeKeepers, keeper: NativeKeeper) -> tuple[str, ...]:
    """The parts of a running job that could not be saved, a line each. The job is not stopped for it.

    Raises:
        CheckpointFailed: it could not be looked at.
    """
    return _report_of(keeper, await _command(keepers, keeper, EXAMINE, ())).refused


async def checkpoint(
    keepers: NativeKeepers,
    keeper: NativeKeeper,
    directory: Path,
    *,
    stop: bool,
    taken: bytes | None = None,
    loose: bool = False,
    parent: Path | None = None,
    mark: int = 0,
    carry: bool = False,
    let_go: LetGo | None = None,
) -> CheckpointReport:
    """Write an image of a job to `directory`, which must not exist. With `stop` it ends with it: nothing of the job
    happens after the image. With `taken` the keeper also lists the scratch directory of a job that goes on, and copies
    what is not as it is said there (pool/checkpoint/state/scratch_directory.c). With `loose` the image is not
    synchronised: it is on its way to where it is kept. With `parent`, the image that was made of this keeper's job just
    before, what has not changed since is taken over from it, if the kernel can tell; both directories stay whole,
    whichever goes first. With `mark` the submit machine notes the moment under that number. With `carry` it holds what
    is mapped of programs and libraries as well, for a machine that has others or none. `let_go` is called where the job
    runs on before its image is written, with the pipes as in `CheckpointReport.held`.

    Raises:
        CheckpointFailed: there is no image.
    """
    aside = directory.with_name(directory.name + ASIDE)
    _must_be_new(keeper, directory)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        if taken is not None:
            (aside / "taken").write_bytes(taken)
        if parent is not None:
            _lay_beside(parent, aside)
        flags = (stop, STOP), (loose, LOOSE), (carry, CARRY)
        how = sum(bit for wanted, bit in flags if wanted) | mark << MARK_SHIFT
        with _opened(aside) as fd:
            report = _report_of(keeper, await _command(keepers, keeper, how, (fd,), let_go))
        if not report.refused:
            os.rename(aside, directory)
            if not loose:
                with _opened(directory.parent) as fd:
                    os.fsync(fd)
        return report
    except OSError as error:
        raise CheckpointFailed(
            f"cannot checkpoint {keeper.id}: {directory}: {os.strerror(error.errno or 0).lower()}", retry=True
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _lay_beside(parent: Path, aside: Path) -> None:
    """Links to the previous image, which pool/checkpoint/dump/parent_image.c reads. Without links, on another file
    system, the image will be a full one.
    """
    try:
        for stem in (PAGES, MORE):
            for number in range(SOURCES - 1):
                path = parent / (f"{stem}.{number}" if number else stem)
                if path.exists():
                    os.link(path, aside / f"{stem}.{number + 1}")
        if (parent / CARRIED).exists():
            os.link(parent / CARRIED, aside / CARRIED)
        os.link(parent / META, aside / "parent")
    except OSError:
        return


def _must_be_new(keeper: NativeKeeper, directory: Path) -> None:
    if directory.exists():
        raise CheckpointFailed(f"cannot checkpoint {keeper.id}: {directory} exists", hint="name another directory")


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


async def _command(
    keepers: NativeKeepers, keeper: NativeKeeper, how: int, fds: tuple[int, ...], let_go: LetGo | None = None
) -> Report:
    """The keeper's answer; its job's end may come first, but then the answer has come before it or never will."""
    if not keepers.abilities.checkpoint:
        raise CheckpointFailed(f"cannot checkpoint {keeper.id}: this machine does not allow it")
    on_report = (lambda report: let_go(_held(report))) if let_go is not None else None
    answer = keepers.ask_checkpoint(keeper, how, fds, on_report)
    try:
        await asyncio.wait((answer, keeper.ended), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise CheckpointFailed(f"cannot checkpoint {keeper.id}: the job has ended")
        return answer.result()
    finally:
        answer.cancel()


def _report_of(keeper: NativeKeeper, report: Report) -> CheckpointReport:
    if report.code not in (DONE, REFUSED):
        if report.call == "checkpoint" and report.text:  # the keeper's own reason, whole
            raise CheckpointFailed(f"cannot checkpoint {keeper.id}: {report.text}", retry=True)
        thing = f"{report.call} {report.text}".strip()
        reason = os.strerror(report.err).lower()
        raise CheckpointFailed(f"cannot checkpoint {keeper.id}: {thing}: {reason}", retry=True)
    return CheckpointReport(
        bytes=report.system_us,
        seconds=report.wall_us / 1e6,
        standstill=report.user_us / 1e6,
        refused=tuple(report.text.splitlines()) if report.code == REFUSED else (),
        processes=report.processes,
        held=_held(report) if report.code == DONE else frozenset(),
    )


def _held(report: Report) -> frozenset[int]:
    return frozenset(index for index, mark in enumerate(report.text) if mark == "1")


class Image:
    """An image on its way to the keeper that is to put it back.

    Raises:
        OSError: it is not there.
    """

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def hand(self, keepers: NativeKeepers, keeper: NativeKeeper) -> None:
        """Send it after the start, which may have to be done again."""
        keepers.hand(keeper, Verb.IMAGE, 0, self._fd)

    def close(self) -> None:
        """The job runs, or never will."""
        os.close(self._fd)
