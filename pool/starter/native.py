"""The real keepers, from Python: one datagram to start a job, one back when it runs, one when it has ended.

    node --START--> fork server --fork--> keeper --STARTED, ENDED--> node      (one socket pair for all)
    node --START--> waiting keeper ---------- STARTED, ENDED --> node
    node --SUSPEND, VACATE, RENEW, ...--> keeper                           (the socket of its cell)

The fork server (pool.starter.fork_server) is a small process that is started again should it die. Running keepers do
not notice, since each has the pair's other end itself. A keeper's state that must not be lost lies in its cell
(pool.starter.cells); messages are hints. Here each job takes two small objects: no thread, no child process, no
descriptor. A keeper whose job has ended may wait for another of the same kind (pool.starter.idle_keepers). Only a
keeper whose parent is not this node's fork server (found again, or left by one that died) is watched by a descriptor of
its own (pool.starter.orphans).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import functools
import itertools
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pool.checkpoint import program as installed_program
from pool.checkpoint.messages_table import KeeperCondition, Verb
from pool.network import program as relay_program
from pool.network.relay_process import relay_trouble
from pool.starter.abilities import abilities_of
from pool.starter.cells import Directory
from pool.starter.checkpointing import Image
from pool.starter.fork_server import GONE_TIME, ForkServer, exits, resolve
from pool.starter.handle import NativeKeeper
from pool.starter.idle_keepers import Idle, IdleKeepers, kind_of
from pool.starter.messages import (
    TOO_BIG,
    Report,
    boot_us,
    end_report,
    pack_control,
    pack_start,
    start_failed,
    unpack_report,
    usage_of,
)
from pool.starter.orphans import Orphans
from pool.starter.outbox import Letter, Outbox
from pool.starter.show_paths import ShownDirectory, without_others_directories
from pool.starter.slow_starts import StartWatch, log_slow
from pool.starter.spec import NO_ENDS, Abilities, EndReport, JobUsage, KeeperError, KeeperSpec, StartFailed

#: Messages read before others get a turn on the loop.
BATCH = 64
#: Seconds after which a keeper that does not obey a kill is killed itself, and its job with it.
INSIST_AFTER = 5.0
#: Seconds in which a start is taken by the fork server, and after that until there is a keeper for it.
START_TIME = 60.0
#: Seconds for which a directory may still be in use by what is left of another node, and between two tries.
LOCK_TIME, LOCK_AGAIN = 2.0, 0.05
SOCKET_ROOM = 1 << 20
#: The generation of keepers that may not be children of this node's fork server, whose deaths it cannot tell.
OF_NO_FORK_SERVER = 0

_STARTED, _FAILED, _ENDED, _USED, _HELLO, _GONE, _CHECKPOINTED, _LET_GO = (
    int(verb)
    for verb in (
        Verb.STARTED,
        Verb.FAILED,
        Verb.ENDED,
        Verb.USED,
        Verb.HELLO,
        Verb.GONE,
        Verb.CHECKPOINTED,
        Verb.LET_GO,
    )
)
_WAITING = int(KeeperCondition.WAITING)


class NativeKeepers:
    """The keepers of one node; see `pool.starter.keeper.Keepers`.

    Args:
        directory: where their cells lie; outlives the node.
        native: the keeper program; the installed one by default.
        show: directories that isolation 'full' shows beside the system's.
        without: abilities not to use though the machine has them (`pool.starter.abilities.Able`), for trying
            what is left.
        relay: of jobs' networks; the installed one by default.
    """

    def __init__(
        self,
        directory: Path | str,
        native: Path | str | None = None,
        *,
        show: Iterable[ShownDirectory] = (),
        without: int = 0,
        relay: Path | None = None,
    ) -> None:
        self.abilities = Abilities()
        self._relay = relay or relay_program()
        self._relay_trouble = ""
        self._directory = Directory(Path(directory))
        self._native = Path(native) if native is not None else installed_program()
        self._shown = tuple(show)
        options = (("--show-rw" if one.writable else "--show", one.path) for one in self._shown)
        self._options = [*(word for pair in options for word in pair), "--without", str(without)]
        self._live: dict[int, NativeKeeper] = {}
        #: By cell: those whose job has ended, whose end is not acknowledged, and which wait for another job then.
        self._to_wait: dict[int, NativeKeeper] = {}
        self._questions: dict[int, asyncio.Future[JobUsage]] = {}
        self._checkpoints: dict[int, tuple[asyncio.Future[Report], Callable[[Report], None] | None]] = {}
        self._free: list[int] = []
        self._next_cell = 0
        #: The cells whose sockets the present fork server has made. The name of another's may still lead to a keeper
        #: that is gone in a moment, or to what guards others beside it.
        self._sockets: set[int] = set()
        self._numbers = itertools.count(1)
        self._sequence = itertools.count(1)
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def fork_server_pid(self) -> int:
        """The process id of the fork server."""
        return self._fork_server.pid

    @property
    def generation(self) -> int:
        """How many fork servers there have been."""
        return self._fork_server.generation

    # -- the node's side ---------------------------------------------------------------------------------

    async def open(self) -> list[NativeKeeper]:
        """Begin, and find those of an earlier node.

        Raises:
            KeeperError: the directory is in use or not writable, or the program is missing or cannot run
            here.
        """
        self._loop = asyncio.get_running_loop()
        await self._take_directory()
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self._ours, self._theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_ROOM)
        self._ours.setblocking(False)
        self._control.setblocking(False)
        self._outbox = Outbox(self._ours, START_TIME)
        self._loop.add_reader(self._ours.fileno(), self._readable)
        arguments = ["fork-server", str(self._directory.path), *self._options]
        self._fork_server = ForkServer(
            self._native, arguments, self._theirs.fileno(), gone=self._fork_server_gone, back=self._fork_server_back
        )
        self._strays = Orphans(self._directory, self._live, self._stray_ended, self._send_again)
        self._waiting = IdleKeepers(self._retire)
        late, over = self._must_have_begun, self.end_by_force
        self._starts = StartWatch(START_TIME, slow=self._is_slow, late=late, over=over)
        try:
            self._fork_server.start()
            await self._fork_server.ready()
            self._relay_trouble = await relay_trouble(self._relay)
            self.abilities = self._with_relay(self.abilities)
            return await self._find()
        except BaseException:
            await self.close(kill=False)
            raise

    def _with_relay(self, able: Abilities) -> Abilities:
        """A machine whose relay is of another version gives jobs no networks of their own."""
        why = able.private_network_why or self._relay_trouble
        return replace(able, private_network=not why, private_network_why=why)

    async def _take_directory(self) -> None:
        """Take the directory, from a node that was just killed, too: a fork server that it was starting has its
        descriptors, and so its lock, until it executes its program.

        Raises:
            KeeperError: it is in use, or not writable.
        """
        most = self._loop.time() + LOCK_TIME
        while True:
            try:
                return self._directory.open()
            except KeeperError as error:
                if not error.retry or self._loop.time() >= most:
                    raise
            await asyncio.sleep(LOCK_AGAIN)

    async def start(
        self,
        spec: KeeperSpec,
        *,
        image: Path | None = None,
        remote: int | None = None,
        ends: Mapping[int, int] = NO_ENDS,
        asked: Callable[[NativeKeeper], None] | None = None,
    ) -> NativeKeeper:
        """Start a job; returns when its program runs. When this is cancelled the job is killed and forgotten, also
        where its keeper hangs; it is gone when the cancellation comes out.

        With `image`, the directory of a checkpoint, it goes on from there: of `spec` then only identity, scratch
        directory, limits and isolation count. `remote` is a stream to the submit machine's files, for a spec with such.
        `ends`: by its index the job's end of each pipe that leads to another machine. The caller's copies stay the
        caller's. `asked` hears of the keeper at once: a restore may take longer than the lease that it begins with.

        Raises:
            StartFailed: it does not run, and nothing of it is left.
        """
        number = next(self._numbers)
        spec = without_others_directories(spec, self._shown)
        kind = kind_of(spec)
        idle = self._waiting.take_keeper(kind) if image is None else None
        if idle is not None:
            cell = idle.cell
        elif self._free:
            cell = self._free.pop()
        else:
            cell, self._next_cell = self._next_cell, self._next_cell + 1
        keeper = NativeKeeper(self, spec, number, cell)
        keeper.kind = kind
        try:
            if image is not None:
                keeper.image = self._open_image(spec, image)
            message = pack_start(spec, number, cell, image=image is not None)
        except BaseException:
            if idle is not None and kind is not None:
                self._waiting.add_keeper(kind, cell, idle.pid, idle.number)
            else:
                self._free.append(cell)
            raise
        self._live[number] = keeper
        self._starts.add(keeper, spec.lease_seconds + INSIST_AFTER if spec.lease_seconds else None)
        try:
            if asked is not None:
                asked(keeper)
            if idle is not None:
                self._start_in(idle, keeper, message)
            else:
                self._send_start(keeper, message)
            if remote is not None:
                self.hand_stream(keeper, remote)
            for pipe, fd in ends.items():
                keeper.ends[pipe] = os.dup(fd)
            self._hand_ends(keeper)
            if keeper.image is not None:
                keeper.image.hand(self, keeper)
            await asyncio.shield(keeper.starting)
        except asyncio.CancelledError:
            keeper.unwanted = True
            if keeper.letter is not None and self._outbox.withdraw(keeper.letter):
                self._never_begins(keeper, "it was not wanted any more")
                raise
            self._drop_unwanted(keeper)
            await asyncio.wait([keeper.ended], timeout=INSIST_AFTER + GONE_TIME)
            raise
        finally:
            self._starts.drop(keeper)
            if keeper.image is not None:
                keeper.image.close()
                keeper.image = None
            keeper.keep_stream(None)
            keeper.close_ends()
        return keeper

    def _open_image(self, spec: KeeperSpec, image: Path) -> Image:
        if not self.abilities.checkpoint:
            raise StartFailed(f"cannot resume {spec.id}: this machine does not allow it", call="restore")
        try:
            return Image(image)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise StartFailed(f"cannot resume {spec.id}: {image}: {reason}", call="restore") from error

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
        self._outbox.close()
        self._strays.close()
        self._waiting.close()
        self._starts.close()
        for end in (self._ours, self._theirs, self._control):
            end.close()  # of which the fork server and the waiting keepers hear
        await self._fork_server.close()
        self._directory.close()

    # -- what a keeper's handle needs --------------------------------------------------------------------

    def send(
        self, keeper: NativeKeeper, verb: Verb, value: int = 0, sequence: int = 0, fds: tuple[int, ...] = ()
    ) -> None:
        """Send a keeper a message; when its socket is full, a little later."""
        if keeper.ended.done() or self._closing:
            return
        message = pack_control(verb, keeper.number, keeper.cell, value, sequence)
        name = self._directory.socket(keeper.cell)
        if not self._can_be_reached(keeper):
            if keeper.number in self._live:
                self._loop.call_later(0.01, self.send, keeper, verb, value, sequence, fds)
            return
        try:
            if fds:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                self._control.sendmsg([message], [rights], 0, name)
            else:
                self._control.sendto(message, name)
        except BlockingIOError:
            self._loop.call_later(0.01, self.send, keeper, verb, value, sequence, fds)
        except (ConnectionRefusedError, FileNotFoundError):
            if keeper.number not in self._live:
                return  # it never began
            if not keeper.starting.done():  # the fork server has not come to it yet
                self._loop.call_later(0.01, self.send, keeper, verb, value, sequence, fds)
            else:
                self._strays.watch(keeper)

    def _can_be_reached(self, keeper: NativeKeeper) -> bool:
        """Whether the name of a cell's socket leads to this keeper already, or will when there is one."""
        if keeper.starting.done() or keeper.cell in self._sockets:
            return True
        cell = self._directory.read(keeper.cell)
        return cell is not None and cell.number == keeper.number

    def hand_stream(self, keeper: NativeKeeper, fd: int) -> None:
        """Give a keeper a stream to the submit machine's files, when it can take it. While it starts, a copy is kept:
        should its start be sent again, the stream is, too.
        """
        if not keeper.starting.done():
            keeper.keep_stream(fd)
        self.hand(keeper, Verb.REMOTE, 0, fd)

    def hand(self, keeper: NativeKeeper, verb: Verb, value: int, fd: int) -> None:
        """Send a keeper a message with a copy of a descriptor, when it can take it."""
        self._send_descriptor(keeper, verb, value, os.dup(fd))

    def _hand_ends(self, keeper: NativeKeeper) -> None:
        for pipe, fd in keeper.ends.items():
            self._send_descriptor(keeper, Verb.END, pipe, os.dup(fd))

    def _send_descriptor(self, keeper: NativeKeeper, verb: Verb, value: int, own: int) -> None:
        if keeper.number not in self._live or self._closing:
            os.close(own)
            return
        later = not self._can_be_reached(keeper)
        try:
            if not later:
                message = pack_control(verb, keeper.number, keeper.cell, value)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (own,)))]
                self._control.sendmsg([message], rights, 0, self._directory.socket(keeper.cell))
        except (BlockingIOError, ConnectionRefusedError, FileNotFoundError):
            later = True
        if later:
            self._loop.call_later(0.01, self._send_descriptor, keeper, verb, value, own)
        else:
            os.close(own)

    def renew(self, keeper: NativeKeeper, seconds: float) -> None:
        """Let a job's lease end so many seconds from now, also while it starts."""
        self._starts.renew(keeper, seconds + INSIST_AFTER)
        end_us = boot_us(seconds)
        self.send(keeper, Verb.RENEW, end_us)
        if keeper.starting.done() and not keeper.ended.done() and not self._closing:
            with contextlib.suppress(OSError):  # the keeper notes it as well, if it does not stand still
                self._directory.renew(keeper.cell, end_us)

    def kill(self, keeper: NativeKeeper) -> None:
        """Have a keeper kill its job. Where there is no process namespace a job can have stopped it."""
        self.send(keeper, Verb.KILL)
        self._loop.call_later(INSIST_AFTER, self.end_by_force, keeper)

    def end_by_force(self, keeper: NativeKeeper) -> None:
        """Kill a keeper itself, and its job with it: it may be stopped, or hang in the kernel."""
        if keeper.ended.done() or self._closing or keeper.number not in self._live:
            return
        cell = self._directory.read(keeper.cell)
        if cell is None or cell.number != keeper.number or not cell.pid:
            return
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(cell.pid)
            try:
                if self._directory.locked(keeper.cell):  # else the id may be another's by now
                    keeper.forced = True
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)

    def request_usage(self, keeper: NativeKeeper) -> asyncio.Future[JobUsage]:
        """Ask a keeper what its job uses."""
        sequence = next(self._sequence)
        answer: asyncio.Future[JobUsage] = self._loop.create_future()
        self._questions[sequence] = answer
        answer.add_done_callback(lambda _: self._questions.pop(sequence, None))
        self.send(keeper, Verb.USAGE, sequence=sequence)
        return answer

    def ask_checkpoint(
        self, keeper: NativeKeeper, how: int, fds: tuple[int, ...], let_go: Callable[[Report], None] | None = None
    ) -> asyncio.Future[Report]:
        """Ask a keeper for a checkpoint (`how`: see enum checkpoint); `let_go` hears that the job runs on meanwhile."""
        sequence = next(self._sequence)
        answer: asyncio.Future[Report] = self._loop.create_future()
        self._checkpoints[sequence] = answer, let_go
        answer.add_done_callback(lambda _: self._checkpoints.pop(sequence, None))
        self.send(keeper, Verb.CHECKPOINT, how, sequence, fds)
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
        self._to_wait.pop(keeper.cell, None)
        if keeper.waits and keeper.kind is not None:
            self._begins_to_wait(keeper, keeper.kind)
        elif keeper.waits:  # no other job may have it, and it would take the messages of the cell's next keeper
            self._retire(Idle(keeper.cell, keeper.pid, keeper.number, 0.0))
        else:
            self._free.append(keeper.cell)
        keeper.cell = -1

    # -- messages ----------------------------------------------------------------------------------------

    def _send_start(self, keeper: NativeKeeper, message: bytes) -> None:
        """Have the fork server start a keeper, which has to be there within a bound."""
        sent, lost = functools.partial(self._start_was_sent, keeper), functools.partial(self._never_begins, keeper)
        keeper.letter = Letter(message, sent, lost)
        self._outbox.send(keeper.letter)

    def _start_was_sent(self, keeper: NativeKeeper) -> None:
        keeper.letter = None
        self._starts.sent(keeper)

    def _is_slow(self, keeper: NativeKeeper) -> None:
        log_slow(self._directory, keeper, self.fork_server_pid)

    def _must_have_begun(self, keeper: NativeKeeper) -> None:
        if keeper.starting.done() or self._closing or keeper.number not in self._live:
            return
        cell = self._directory.read(keeper.cell)
        if cell is None or cell.number != keeper.number or not cell.pid:
            keeper.unwanted = True  # should it begin after all
            why = f"nothing has come of it for {START_TIME:g} s"
            keeper.starting.set_exception(StartFailed(f"cannot start {keeper.id}: {why}", call="start", retry=True))

    def _never_begins(self, keeper: NativeKeeper, why: str) -> None:
        """A start that has not been sent, and will not be."""
        keeper.letter = None
        if keeper.number in self._live:
            self._has_failed(keeper, StartFailed(f"cannot start {keeper.id}: {why}", call="start", retry=True))

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
            self._handle_report(report)

    def _handle_report(self, report: Report) -> None:
        verb = report.verb
        if verb == _HELLO:
            self.abilities = self._with_relay(abilities_of(report))
            self._fork_server.hello_received()
            return
        if verb == _USED:
            answer = self._questions.get(report.sequence)
            if answer is not None and not answer.done():
                answer.set_result(usage_of(report))
            return
        if verb in (_CHECKPOINTED, _LET_GO):
            waiting, let_go = self._checkpoints.get(report.sequence, (None, None))
            if verb == _LET_GO and let_go is not None:
                let_go(report)
            elif verb == _CHECKPOINTED and waiting is not None and not waiting.done():
                waiting.set_result(report)
            return
        if verb == _GONE:
            self._waiting_one_died(report.cell, report.number)
            return
        keeper = self._live.get(report.number)
        if keeper is None:
            return
        if verb == _STARTED:
            self._has_started(keeper, report.pid)
        elif verb == _ENDED:
            keeper.pid = keeper.pid or report.pid
            keeper.waits = bool(report.condition & _WAITING)
            if keeper.waits:
                self._to_wait[keeper.cell] = keeper
            self._has_ended(keeper, end_report(report, keeper.spec.members))
        elif verb == _FAILED:
            self._has_failed(keeper, start_failed(keeper.spec, report))

    def _has_started(self, keeper: NativeKeeper, pid: int) -> None:
        keeper.pid = pid
        if keeper.starting.done() and not keeper.unwanted:
            return
        resolve(keeper.starting)
        if keeper.generation != self.generation:
            self._strays.watch(keeper)
        else:
            self._sockets.add(keeper.cell)
        if keeper.unwanted:
            self._drop_unwanted(keeper)

    def _has_failed(self, keeper: NativeKeeper, why: StartFailed) -> None:
        del self._live[keeper.number]
        self._free.append(keeper.cell)
        if keeper.unwanted:
            keeper.starting.cancel()
            keeper.ended.cancel()
        elif not keeper.starting.done():
            keeper.starting.set_exception(why)

    def _has_ended(self, keeper: NativeKeeper, end: EndReport) -> None:
        del self._live[keeper.number]
        self._strays.drop(keeper)
        if not keeper.starting.done():
            keeper.starting.set_result(None)
        if not keeper.ended.done():  # whoever waited without a shield may have cancelled it
            keeper.ended.set_result(replace(end, lost=False) if keeper.forced else end)
        if keeper.unwanted:
            self._drop_unwanted(keeper)

    def _drop_unwanted(self, keeper: NativeKeeper) -> None:
        """A start that nobody waits for any more."""
        if keeper.ended.done():
            with contextlib.suppress(KeeperError):
                self.release(keeper)
        else:
            self.kill(keeper)

    # -- waiting keepers ---------------------------------------------------------------------------------

    def _start_in(self, idle: Idle, keeper: NativeKeeper, message: bytes) -> None:
        """Start a job in a keeper that waits; when it cannot be reached, in another one."""
        try:
            if len(message) < TOO_BIG:
                self._control.sendto(message, self._directory.socket(idle.cell))
                keeper.generation, keeper.reused = self.generation, idle.pid
                self._starts.sent(keeper)
                return
        except OSError:
            pass
        self._retire(idle)
        keeper.cell, self._next_cell = self._next_cell, self._next_cell + 1
        self._send_start(keeper, pack_start(keeper.spec, keeper.number, keeper.cell))

    def _begins_to_wait(self, keeper: NativeKeeper, kind: tuple[object, ...]) -> None:
        if self._closing:
            return
        if keeper.generation == self.generation:
            self._waiting.add_keeper(kind, keeper.cell, keeper.pid, keeper.number)
        else:  # its death would not be noticed
            self._retire(Idle(keeper.cell, keeper.pid, keeper.number, 0.0))

    def _retire(self, idle: Idle) -> None:
        """End a waiting keeper; its cell is used again when it is gone."""
        with contextlib.suppress(OSError):
            message = pack_control(Verb.RETIRE, idle.number, idle.cell)
            self._control.sendto(message, self._directory.socket(idle.cell))
        self._spawn(self._free_when_gone(idle))

    async def _free_when_gone(self, idle: Idle) -> None:
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(idle.pid)
            try:
                if not await exits(pidfd):
                    return
            finally:
                os.close(pidfd)
        self._free.append(idle.cell)

    def _waiting_one_died(self, cell: int, number: int) -> None:
        """Killed by somebody: while it waited, before the end of its last run was acknowledged, or with a start in its
        socket that it did not come to. The socket is the fork server's, and takes messages for a dead keeper, too.

        Args:
            number: of its last run.
        """
        if self._waiting.remove(cell):
            self._free.append(cell)
            return
        ended = self._to_wait.get(cell)
        if ended is not None and ended.number == number:
            ended.waits = False
            del self._to_wait[cell]
            return
        for keeper in self._live.values():
            if keeper.cell == cell and keeper.reused and not keeper.starting.done():
                self._send_again(keeper)

    def _send_again(self, keeper: NativeKeeper) -> None:
        """A start that may have been lost with whoever had it in hand; a cell takes the same start only once."""
        keeper.reused, keeper.generation = 0, self.generation
        if keeper.letter is None:
            message = pack_start(keeper.spec, keeper.number, keeper.cell, image=keeper.image is not None)
            self._send_start(keeper, message)
        if keeper.stream is not None:
            self.hand(keeper, Verb.REMOTE, 0, keeper.stream)
        self._hand_ends(keeper)
        if keeper.image is not None:
            keeper.image.hand(self, keeper)

    # -- what outlives a fork server or a node ---------------------------------------------------------------

    def _fork_server_gone(self) -> None:
        """It died: another takes its place. Its keepers now answer to nobody's wait but ours."""
        self._readable()

    def _fork_server_back(self) -> None:
        self._waiting.clear()
        self._sockets.clear()
        for keeper in list(self._live.values()):
            if keeper.starting.done() or keeper.reused:
                keeper.pid = keeper.pid or keeper.reused
                self._strays.watch(keeper)
            else:
                self._send_again(keeper)
                keeper.generation = OF_NO_FORK_SERVER  # its process may be the dead one's child already

    async def _find(self) -> list[NativeKeeper]:
        found = []
        highest = 0
        for number in self._directory.numbers():
            self._next_cell = max(self._next_cell, number + 1)
            cell = self._directory.read(number)
            if cell is not None:
                highest = max(highest, cell.number)
            if not self._strays.holds_a_job(cell):
                if not self._directory.locked(number):
                    self._free.append(number)
                continue
            assert cell is not None
            assert cell.spec is not None
            keeper = NativeKeeper(self, cell.spec, cell.number, number)
            keeper.generation = OF_NO_FORK_SERVER
            keeper.starting.set_result(None)
            keeper.pid = cell.pid
            self._live[keeper.number] = keeper
            if await self._strays.adopt(keeper):
                self.send(keeper, Verb.ADOPT, fds=(self._theirs.fileno(),))
            found.append(keeper)
        self._numbers = itertools.count(highest + 1)
        return found

    def _stray_ended(self, keeper: NativeKeeper, end: EndReport) -> None:
        """It was watched, and is gone; what it said before that comes first."""
        self._readable()
        if keeper.number in self._live:
            self._has_ended(keeper, end)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
