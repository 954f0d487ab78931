"""The real keepers, from Python: one datagram to start a job, one back when it runs, one when it has ended.

    node --START--> nursery --fork--> keeper --STARTED, ENDED--> node      (one socket pair for all)
    node --SUSPEND, VACATE, RENEW, ...--> keeper                           (the socket of its cell)

The nursery is a small process that this module starts and, should it die, starts again; running keepers do
not notice, since each has the pair's other end itself. What a keeper must not lose lies in its cell
(pool.starter.cells); messages are hints. Nothing here is per job but two small objects: no thread, no child
process, no descriptor. Only a keeper whose parent is not this node's nursery, found again or left by one that
died, is watched by a descriptor of its own (pidfd).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import os
import signal
import socket
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

from pool.checkpoint import program as installed_program
from pool.starter.cells import Directory, same_process
from pool.starter.handle import NativeKeeper
from pool.starter.messages import (
    TOO_BIG,
    Report,
    State,
    Verb,
    abilities_of,
    end_report,
    pack_control,
    pack_start,
    start_failed,
    unpack_report,
    usage_of,
)
from pool.starter.spec import Abilities, Cause, EndReport, KeeperError, KeeperSpec, StartFailed, Usage

#: Seconds: for a nursery to say hello, for a dying keeper to be gone.
HELLO_TIME, GONE_TIME = 10.0, 10.0
#: Messages read before others get a turn on the loop.
BATCH = 64
SOCKET_ROOM = 1 << 20
LOST = "its keeper was killed"

_STARTED, _FAILED, _ENDED, _USED, _HELLO = (
    int(verb) for verb in (Verb.STARTED, Verb.FAILED, Verb.ENDED, Verb.USED, Verb.HELLO)
)


class NativeKeepers:
    """The keepers of one node; see `pool.starter.keeper.Keepers`.

    Args:
        directory: where their cells lie; outlives the node.
        native: the keeper program; the installed one by default.
        show: host paths that isolation 'full' shows read-only beside the system's directories.
        without: abilities not to use though the machine has them (`pool.starter.messages.Able`), for trying
            what is left.
    """

    def __init__(
        self,
        directory: Path | str,
        native: Path | str | None = None,
        *,
        show: Iterable[str] = (),
        without: int = 0,
    ) -> None:
        self.abilities = Abilities()
        self.generation = 0
        self.nursery = 0
        self._directory = Directory(Path(directory))
        self._native = Path(native) if native is not None else installed_program()
        self._options = [*(word for path in show for word in ("--show", path)), "--without", str(without)]
        self._live: dict[int, NativeKeeper] = {}
        self._questions: dict[int, asyncio.Future[Usage]] = {}
        self._watched: dict[int, int] = {}  # number -> pidfd
        self._free: list[int] = []
        self._next_cell = 0
        self._numbers = itertools.count(1)
        self._sequence = itertools.count(1)
        self._hello: asyncio.Future[None] | None = None
        self._nursery_fd = -1
        self._restarts = 0
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the node's side ---------------------------------------------------------------------------------

    async def open(self) -> list[NativeKeeper]:
        """Begin, and find those of an earlier node.

        Raises:
            KeeperError: the directory is in use or not writable, or the program is missing or cannot run
            here.
        """
        self._loop = asyncio.get_running_loop()
        self._directory.open()
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self._ours, self._theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_ROOM)
        self._ours.setblocking(False)
        self._control.setblocking(False)
        self._loop.add_reader(self._ours.fileno(), self._readable)
        try:
            self._start_nursery()
            assert self._hello is not None
            await asyncio.wait_for(asyncio.shield(self._hello), HELLO_TIME)
            return await self._find()
        except TimeoutError:
            await self.close(kill=False)
            raise KeeperError(
                f"cannot start keepers: {self._native} does not answer",
                hint="another node's nursery may still run: look for 'keeper nursery' among the processes",
                retry=True,
            ) from None
        except BaseException:
            await self.close(kill=False)
            raise

    async def start(self, spec: KeeperSpec) -> NativeKeeper:
        """Start a job; returns when its program runs. When this is cancelled the job is killed and forgotten.

        Raises:
            StartFailed: it does not run, and nothing of it is left.
        """
        number = next(self._numbers)
        if self._free:
            cell = self._free.pop()
        else:
            cell, self._next_cell = self._next_cell, self._next_cell + 1
        keeper = NativeKeeper(self, spec, number, cell)
        try:
            message = pack_start(spec, number, cell)
        except BaseException:
            self._free.append(cell)
            raise
        self._live[number] = keeper
        try:
            if not self._send_start(message):
                await self._send_start_later(message)
            await asyncio.shield(keeper.starting)
        except asyncio.CancelledError:
            keeper.unwanted = True
            if keeper.starting.done():
                self._drop_unwanted(keeper)
            raise
        return keeper

    async def close(self, *, kill: bool) -> None:
        """End the node's part. With `kill` the jobs end first; their reports stay until an `open` and
        `forget`.
        """
        if self._closing:
            return
        if kill:
            live = list(self._live.values())
            for keeper in live:
                await keeper.kill()
            if live:
                await asyncio.wait([keeper.ended for keeper in live], timeout=GONE_TIME)
        self._closing = True
        if self._directory.fd < 0:
            return
        self._loop.remove_reader(self._ours.fileno())
        for pidfd in self._watched.values():
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._watched.clear()
        for end in (self._ours, self._theirs, self._control):
            end.close()
        if self._nursery_fd >= 0:  # it ends by itself now that nobody has the pair's other end
            self._loop.remove_reader(self._nursery_fd)
            if not await self._exits(self._nursery_fd):
                os.kill(self.nursery, signal.SIGKILL)
            self._bury()
        self._directory.close()

    # -- what a keeper's handle needs --------------------------------------------------------------------

    def tell(
        self, keeper: NativeKeeper, verb: Verb, value: int = 0, sequence: int = 0, fds: tuple[int, ...] = ()
    ) -> None:
        """Send a keeper a message; when its socket is full, a little later."""
        if keeper.ended.done() or self._closing:
            return
        message = pack_control(verb, keeper.number, keeper.cell, value, sequence)
        name = self._directory.socket(keeper.cell)
        try:
            if fds:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                self._control.sendmsg([message], [rights], 0, name)
            else:
                self._control.sendto(message, name)
        except BlockingIOError:
            self._loop.call_later(0.01, self.tell, keeper, verb, value, sequence, fds)
        except (ConnectionRefusedError, FileNotFoundError):
            if not keeper.starting.done():  # the nursery has not come to it yet
                self._loop.call_later(0.01, self.tell, keeper, verb, value, sequence, fds)
            else:
                self._watch(keeper)

    def ask(self, keeper: NativeKeeper) -> asyncio.Future[Usage]:
        """Ask a keeper what its job uses."""
        sequence = next(self._sequence)
        answer: asyncio.Future[Usage] = self._loop.create_future()
        self._questions[sequence] = answer
        answer.add_done_callback(lambda _: self._questions.pop(sequence, None))
        self.tell(keeper, Verb.USAGE, sequence=sequence)
        return answer

    def release(self, keeper: NativeKeeper) -> None:
        """Drop an ended keeper's report and use its cell again."""
        if not keeper.ended.done():
            raise KeeperError(f"cannot forget {keeper.id}: it is still running", hint="kill it first")
        if keeper.cell < 0:
            return
        try:
            self._directory.free(keeper.cell)
        except OSError as error:
            raise KeeperError(
                f"cannot forget {keeper.id}: {self._directory.path}: {os.strerror(error.errno or 0).lower()}",
                retry=True,
            ) from error
        self._free.append(keeper.cell)
        keeper.cell = -1

    # -- messages ----------------------------------------------------------------------------------------

    def _send_start(self, message: bytes) -> bool:
        try:
            if len(message) < TOO_BIG:
                self._ours.send(message)
                return True
            fd = os.memfd_create("start", os.MFD_CLOEXEC)
            try:
                os.write(fd, message)
                socket.send_fds(self._ours, [b"+"], [fd])
            finally:
                os.close(fd)
            return True
        except BlockingIOError:
            return False

    async def _send_start_later(self, message: bytes) -> None:
        while not self._send_start(message):
            writable: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_writer(self._ours.fileno(), _resolve, writable)
            try:
                await writable
            finally:
                self._loop.remove_writer(self._ours.fileno())

    def _readable(self) -> None:
        for _ in range(BATCH):
            try:
                data = self._ours.recv(4096)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return
            try:
                report = unpack_report(data)
            except ValueError:
                continue
            self._take(report)

    def _take(self, report: Report) -> None:
        verb = report.verb
        if verb == _HELLO:
            self.abilities = abilities_of(report)
            self._restarts = 0
            if self._hello is not None and not self._hello.done():
                self._hello.set_result(None)
            return
        if verb == _USED:
            answer = self._questions.get(report.sequence)
            if answer is not None and not answer.done():
                answer.set_result(usage_of(report))
            return
        keeper = self._live.get(report.number)
        if keeper is None:
            return
        if verb == _STARTED:
            self._has_started(keeper, report.pid)
        elif verb == _ENDED:
            self._has_ended(keeper, end_report(report))
        elif verb == _FAILED:
            self._has_failed(keeper, start_failed(keeper.id, report))

    def _has_started(self, keeper: NativeKeeper, pid: int) -> None:
        keeper.pid = pid
        if keeper.starting.done():
            return
        keeper.starting.set_result(None)
        if keeper.generation != self.generation:
            self._watch(keeper)
        if keeper.unwanted:
            self._drop_unwanted(keeper)

    def _has_failed(self, keeper: NativeKeeper, why: StartFailed) -> None:
        del self._live[keeper.number]
        self._free.append(keeper.cell)
        if keeper.unwanted:
            keeper.starting.cancel()
        elif not keeper.starting.done():
            keeper.starting.set_exception(why)

    def _has_ended(self, keeper: NativeKeeper, end: EndReport) -> None:
        del self._live[keeper.number]
        pidfd = self._watched.pop(keeper.number, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        if not keeper.starting.done():
            keeper.starting.set_result(None)
        if not keeper.ended.done():  # whoever waited without a shield may have cancelled it
            keeper.ended.set_result(end)
        if keeper.unwanted:
            self._drop_unwanted(keeper)

    def _drop_unwanted(self, keeper: NativeKeeper) -> None:
        """A start that nobody waits for any more."""
        if keeper.ended.done():
            with contextlib.suppress(KeeperError):
                self.release(keeper)
        else:
            self.tell(keeper, Verb.KILL)

    # -- the nursery -------------------------------------------------------------------------------------

    def _start_nursery(self) -> None:
        self._hello = self._loop.create_future()
        self.generation += 1
        arguments = [str(self._native), "nursery", str(self._directory.path), *self._options]
        environment = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
        try:
            self.nursery = os.posix_spawn(
                self._native,
                arguments,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, self._theirs.fileno(), 3)],
            )
        except OSError as error:
            raise KeeperError(
                f"cannot start keepers: {self._native}: {os.strerror(error.errno or 0).lower()}",
                hint="in a checkout build it with: python -m pool.checkpoint.build",
            ) from error
        self._nursery_fd = os.pidfd_open(self.nursery)
        self._loop.add_reader(self._nursery_fd, self._nursery_gone)

    def _bury(self) -> int:
        """The exit code of the nursery, which has ended."""
        os.close(self._nursery_fd)
        self._nursery_fd = -1
        _, status = os.waitpid(self.nursery, 0)
        return os.waitstatus_to_exitcode(status)

    def _nursery_gone(self) -> None:
        """It died: another takes its place. Its keepers now answer to nobody's wait but ours."""
        self._loop.remove_reader(self._nursery_fd)
        code = self._bury()
        self._readable()
        assert self._hello is not None
        if not self._hello.done() and self.generation == 1:
            self._hello.set_exception(
                KeeperError(f"cannot start keepers: {self._native} ended at once with status {code}")
            )
            return
        self._restarts += 1
        delay = 0.0 if self._restarts == 1 else min(0.05 * 2**self._restarts, 5.0)
        self._loop.call_later(delay, self._restart_nursery)

    def _restart_nursery(self) -> None:
        if self._closing:
            return
        try:
            self._start_nursery()
        except KeeperError:
            self._restarts += 1
            self._loop.call_later(min(0.05 * 2**self._restarts, 5.0), self._restart_nursery)
            return
        for keeper in list(self._live.values()):
            if keeper.starting.done():
                self._watch(keeper)
            else:  # it may have died with this start in hand; a cell takes the same start only once
                message = pack_start(keeper.spec, keeper.number, keeper.cell)
                if not self._send_start(message):
                    self._spawn(self._send_start_later(message))

    # -- keepers that are not the nursery's --------------------------------------------------------------

    async def _find(self) -> list[NativeKeeper]:
        found = []
        highest = 0
        for number in self._directory.numbers():
            self._next_cell = max(self._next_cell, number + 1)
            cell = self._directory.read(number)
            if cell is not None:
                highest = max(highest, cell.number)
            if cell is None or cell.state == State.FREE or cell.spec is None:
                if not self._directory.locked(number):
                    self._free.append(number)
                continue
            keeper = NativeKeeper(self, cell.spec, cell.number, number)
            keeper.generation = 0
            keeper.starting.set_result(None)
            keeper.pid = cell.pid
            self._live[keeper.number] = keeper
            await self._adopt(keeper)
            found.append(keeper)
        self._numbers = itertools.count(highest + 1)
        return found

    async def _adopt(self, keeper: NativeKeeper) -> None:
        """Take up a keeper of an earlier node: have it answer to this one, and watch it."""
        deadline = self._loop.time() + GONE_TIME
        while self._directory.locked(keeper.cell) and self._loop.time() < deadline:
            cell = self._directory.read(keeper.cell)
            if cell is None or cell.number != keeper.number or cell.state != State.RUNNING:
                break
            if cell.pid:
                keeper.pid = cell.pid
                self._watch(keeper)
                self.tell(keeper, Verb.ADOPT, fds=(self._theirs.fileno(),))
                return
            await asyncio.sleep(0.005)  # it was forked a moment ago and has not written its process id yet
        await self._settle(keeper)

    async def _settle(self, keeper: NativeKeeper) -> None:
        """The end of a keeper that nobody tells of: when its process is gone, by what its cell says."""
        cell = self._directory.read(keeper.cell)
        if cell is not None and cell.report is None and cell.pid and same_process(cell.pid, cell.born_us):
            # Its lock goes a moment before the last of its job's processes does.
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(cell.pid)
                try:
                    await self._exits(pidfd)
                finally:
                    os.close(pidfd)
            cell = self._directory.read(keeper.cell)
        if keeper.number not in self._live:
            return
        report = cell.report if cell is not None else None
        self._has_ended(keeper, end_report(report) if report is not None else _lost(LOST))

    def _watch(self, keeper: NativeKeeper) -> None:
        if keeper.number in self._watched or keeper.number not in self._live or keeper.ended.done():
            return
        try:
            pidfd = os.pidfd_open(keeper.pid)
        except OSError:
            self._spawn(self._settle(keeper))
            return
        if not self._directory.locked(keeper.cell):  # the id may be another's by now
            os.close(pidfd)
            self._spawn(self._settle(keeper))
            return
        self._watched[keeper.number] = pidfd
        self._loop.add_reader(pidfd, self._keeper_gone, keeper)

    def _keeper_gone(self, keeper: NativeKeeper) -> None:
        pidfd = self._watched.pop(keeper.number)
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._readable()
        if keeper.number in self._live:
            self._spawn(self._settle(keeper))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exits(self, pidfd: int) -> bool:
        """Whether a process ends in time."""
        gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(pidfd, _resolve, gone)
        try:
            await asyncio.wait_for(gone, GONE_TIME)
            return True
        except TimeoutError:
            return False
        finally:
            self._loop.remove_reader(pidfd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _lost(why: str) -> EndReport:
    return EndReport(
        code=None,
        signal=int(signal.SIGKILL),
        core=False,
        user_cpu=0.0,
        system_cpu=0.0,
        wall=0.0,
        max_rss=0,
        cause=Cause.KILLED,
        error=why,
    )
