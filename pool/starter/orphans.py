"""Keepers that are not the fork server's children: found by a restarted node, or left by a fork server that died.

Nothing reports their death, so each is watched by a descriptor of its process (pidfd). The end of its job stands in its
cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pool.checkpoint.messages_table import CellState
from pool.starter.cells import Directory, same_process
from pool.starter.fork_server import GONE_TIME, exits
from pool.starter.handle import NativeKeeper
from pool.starter.messages import Cell, boot_us, end_report
from pool.starter.spec import EndCause, EndReport

LOST = "its keeper was killed"
LATE = "its lease ended, and its keeper was stopped and did not end it"


class Orphans:
    """The watched keepers of one node.

    Args:
        live: all keepers whose job has not ended, by number.
        ended: called with one that is gone, and the end that its cell tells.
        unborn: called with one whose keeper died before it came to this run: nothing of it has begun.
    """

    def __init__(
        self,
        directory: Directory,
        live: Mapping[int, NativeKeeper],
        ended: Callable[[NativeKeeper, EndReport], None],
        unborn: Callable[[NativeKeeper], None],
    ) -> None:
        self._directory = directory
        self._live = live
        self._ended = ended
        self._unborn = unborn
        self._loop = asyncio.get_running_loop()
        self._watched: dict[int, int] = {}  # number -> pidfd
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, keeper: NativeKeeper) -> None:
        """Notice when its process is gone."""
        if keeper.number in self._watched or keeper.number not in self._live or keeper.ended.done():
            return
        try:
            pidfd = os.pidfd_open(keeper.pid)
        except OSError:
            self._spawn(self._report_end(keeper))
            return
        if not keeper.reused and not self._directory.locked(keeper.cell):  # the id may be another's by now
            os.close(pidfd)
            self._spawn(self._report_end(keeper))
            return
        self._watched[keeper.number] = pidfd
        self._loop.add_reader(pidfd, self._on_exit, keeper)

    def drop(self, keeper: NativeKeeper) -> None:
        """Watch it no more."""
        pidfd = self._watched.pop(keeper.number, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        """Watch nobody."""
        for pidfd in self._watched.values():
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._watched.clear()

    @staticmethod
    def holds_a_job(cell: Cell | None) -> bool:
        """Whether what lies in a cell is a job that runs or whose end nobody has taken note of."""
        return cell is not None and cell.state != CellState.FREE and cell.spec is not None

    async def adopt(self, keeper: NativeKeeper) -> bool:
        """Take up a keeper of an earlier node; True when it is there, watched, and needs the address to answer to."""
        deadline = self._loop.time() + GONE_TIME
        while self._directory.locked(keeper.cell) and self._loop.time() < deadline:
            cell = self._directory.read(keeper.cell)
            if cell is None or cell.number != keeper.number or cell.state != CellState.RUNNING:
                break
            if cell.pid:
                keeper.pid = cell.pid
                self.watch(keeper)
                return True
            await asyncio.sleep(0.005)  # it was forked a moment ago and has not written its process id yet
        await self._report_end(keeper)
        return False

    async def _report_end(self, keeper: NativeKeeper) -> None:
        """The end of a keeper that nobody tells of: when its process is gone, by what its cell says."""
        cell = self._directory.read(keeper.cell)
        if cell is not None and cell.report is None and cell.pid and same_process(cell.pid, cell.born_us):
            # Its lock goes a moment before the last of its job's processes does.
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(cell.pid)
                try:
                    await exits(pidfd)
                finally:
                    os.close(pidfd)
            cell = self._directory.read(keeper.cell)
        if keeper.number not in self._live:
            return
        if keeper.reused and not keeper.starting.done() and (cell is None or cell.number < keeper.number):
            self._unborn(keeper)
            return
        if cell is not None and cell.report is not None:
            self._ended(keeper, end_report(cell.report, keeper.spec.members))
        elif cell is not None and cell.number == keeper.number and 0 < cell.lease_end_us <= boot_us(0.0):
            self._ended(keeper, _lost(LATE, EndCause.LEASE))
        else:
            self._ended(keeper, _lost(LOST, EndCause.KILLED))

    def _on_exit(self, keeper: NativeKeeper) -> None:
        self.drop(keeper)
        self._spawn(self._report_end(keeper))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _lost(why: str, cause: EndCause) -> EndReport:
    return EndReport(
        code=None,
        signal=int(signal.SIGKILL),
        core=False,
        user_cpu=0.0,
        system_cpu=0.0,
        wall=0.0,
        max_rss=0,
        cause=cause,
        error=why,
        lost=cause is EndCause.KILLED,
    )
