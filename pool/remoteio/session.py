"""One job's requests on the submit side: read from its connection, done, answered as they are ready.

The thread that reads a request does it, too: handing it to another thread costs more than most requests are worth. When
one takes long, another thread goes on reading (`watchdog`), and hands its requests to a few more until that one is
done.

Requests about one handle keep their order, reads among themselves excepted; others do not wait for each other, so that
a slow disk or a lock that is waited for holds up nobody else. A mark waits for all before it, and all after it for
the mark. All after an UNLINK_NAMES wait for it, too: the job takes those names for removed.

The connection may be lost, and another come: requests that were not answered are sent again with the same numbers. A
request is done once, and the answer of a done request is remembered and sent again. The journal knows what a killed
file server had done.
"""

from __future__ import annotations

import errno
import socket
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from pool.remoteio import frames
from pool.remoteio.file_operations import FileOperations, methods
from pool.remoteio.frames import MalformedFrame, Op
from pool.remoteio.intake import RequestReader
from pool.remoteio.locks import TEST, Waits
from pool.remoteio.thread_times import ThreadTimes
from pool.remoteio.watchdog import Watchdog

#: Requests of one job that are done at a time while one of them takes long.
THREADS = 8
#: Answers that are remembered.
REMEMBERED = 4096
#: Seconds after which a lock that is waited for is tried again though nobody said that it is free.
AGAIN = 0.05
#: Requests that change nothing: they may be done twice.
_HARMLESS = {Op.STAT, Op.READLINK, Op.LIST, Op.READ, Op.STATFS, Op.ACCESS, Op.XATTR, Op.SYNC, Op.LOCK,
             Op.SEEK}  # fmt: skip
_BY_HANDLE = {Op.OPEN: 0, Op.REOPEN: 0, Op.READ: 0, Op.WRITE: 0, Op.SYNC: 0, Op.CLOSE: 0, Op.TRUNCATE: 1, Op.LOCK: 0,
              Op.FALLOCATE: 0, Op.SEEK: 0, Op.SETATTR: 0}  # fmt: skip
#: Requests by which jobs meet: who has made a lock file or got a lock is to know what others have changed before.
_MEETS = {Op.OPEN, Op.LOCK, Op.MKDIR, Op.RENAME, Op.LINK, Op.SYMLINK, Op.UNLINK, Op.STAT, Op.LIST,
          Op.UNLINK_NAMES}  # fmt: skip
#: Requests that take names away, and how many paths they begin with. Nobody asks for such a name again, so that it does
#: not count as one that was reported and is not of interest.
_REMOVES = {Op.UNLINK: 1, Op.RENAME: 2}
#: An answer, in the parts that are sent.
Answer = Sequence[bytes | memoryview]


@dataclass(slots=True)
class _Request:
    op: Op
    unique: int
    values: list[Any]
    handle: int = 0


@dataclass(slots=True)
class _Lane:
    """The requests about one handle."""

    reading: int = 0
    changing: bool = False
    waiting: deque[_Request] = field(default_factory=deque)


class _Reading:
    """A connection, and the watch over who reads it.

    Args:
        overtake: has another thread go on with it.
    """

    def __init__(self, intake: RequestReader, overtake: Callable[[_Reading], None]) -> None:
        self.intake = intake
        self.watch = Watchdog(lambda: overtake(self))


class RemoteSession:
    """The requests of one job.

    Args:
        work: what does them.
        hello: the values of the answer to HELLO.
    """

    def __init__(self, work: FileOperations, hello: Callable[[], tuple[Any, ...]]) -> None:
        self._work = work
        self._hello = hello
        self._methods = methods(work)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._ready: SimpleQueue[_Request | None] = SimpleQueue()
        self._threads = 0
        self._free = 0  # threads with nothing to do
        self._behind = 0  # requests that no thread was there for
        self._working = 0  # requests that are being done
        self._running: set[int] = set()
        self._answers: OrderedDict[int, bytes] = OrderedDict()
        self._lanes: dict[int, _Lane] = {}
        self._held: deque[_Request] = deque()
        self._barrier: _Request | None = None
        self._locking: list[_Request] = []
        self._watching = False
        self._connection: socket.socket | None = None
        self._sending = threading.Lock()
        self._closed = False
        #: Processor time that went to this job's requests.
        self.times = ThreadTimes()

    def connect(self, connection: socket.socket) -> None:
        """Take requests from this connection from now on, and from no other."""
        with self._lock:
            before, self._connection = self._connection, connection
        if self._work.leases is not None:
            self._work.leases.end()
        if before is not None:
            _shut(before)
        self._go_on(_Reading(RequestReader(connection), self._go_on))

    def close(self) -> None:
        """End the connection, and wait until nothing is being done any more."""
        with self._idle:
            self._closed = True
            connection, self._connection = self._connection, None
            self._held.clear()
            self._locking.clear()
            for lane in self._lanes.values():
                lane.waiting.clear()
            for _ in range(self._threads):
                self._ready.put(None)
        if connection is not None:
            _shut(connection)
        self._work.locks.wake()
        with self._idle:
            self._idle.wait_for(lambda: not self._working)

    def send_notice(self, frame: bytes) -> None:
        """Say something unasked, if there is anybody."""
        self._send((frame,))

    # -- taking requests ---------------------------------------------------------------------------------

    def _go_on(self, reading: _Reading) -> None:
        self.times.start(self._read, reading)

    def _read(self, reading: _Reading) -> None:
        """Take requests until the connection ends, or another thread goes on with it."""
        connection = reading.intake.connection
        try:
            while (found := reading.intake.request()) is not None:
                if not self._dispatch(reading, *found):
                    return
        except (MalformedFrame, ValueError, OSError):
            pass
        with self._lock:
            if self._connection is connection:
                self._connection = None
        reading.watch.close()
        _shut(connection)
        connection.close()

    def _dispatch(self, reading: _Reading, op: Op | int, unique: int, values: list[Any]) -> bool:
        """Do a request or leave it to others; false when another thread reads meanwhile."""
        if not isinstance(op, Op):  # of a newer job's side, which does without
            self._send((frames.refusal(op, unique, errno.ENOSYS),))
            return True
        if op is Op.HELLO and values[0] != frames.VERSION:
            self._send((frames.refusal(op, unique, errno.EPROTONOSUPPORT),), reading.intake.connection)
            raise MalformedFrame(frames.version_mismatch(values[0]))
        if op is Op.HELLO:
            reading.intake.greeted = True
            self._send((frames.answer(op, unique, *self._hello()),), reading.intake.connection)
            return True
        if not reading.intake.greeted:
            raise MalformedFrame("no HELLO")
        if op is Op.LEASE:  # at once: what is asked behind it relies on it
            done = self._perform(_Request(op, unique, values))
            assert done is not None
            self._send(done, reading.intake.connection)
            return True
        if op in (Op.COMMIT, Op.ROLLBACK):  # these are the schedd's to say
            self._send((frames.refusal(op, unique, errno.EPERM),))
            return True
        place = _BY_HANDLE.get(op)
        request = _Request(op, unique, values, values[place] if place is not None else 0)
        here = False
        with self._lock:
            if self._closed or unique in self._running:
                return True
            known = self._answers.get(unique)
            if known is None:
                self._running.add(unique)
                if self._enter(request):
                    here = not reading.watch.behind and op is not Op.SYNC
                    if here:
                        self._working += 1
                    else:
                        self._start(request)
        if known is not None:
            self._send((known,))
            return True
        if op is Op.LOCK and values[2] == 0 and not values[3] & TEST:
            self._give_up_waiting(request)
        if not here:
            return True
        doing = reading.watch.begin()
        self._finished(request, self._perform(request))
        return reading.watch.end(doing)

    def _enter(self, request: _Request) -> bool:
        """Whether a request may be done now. If not, it is when its turn comes."""
        if self._barrier is not None:
            self._held.append(request)
            return False
        if request.op is Op.MARK:
            self._barrier = request
            self._maybe_mark()
            return False
        if request.op is Op.UNLINK_NAMES:
            self._barrier = request
        if request.handle:
            lane = self._lanes.setdefault(request.handle, _Lane())
            reads = request.op is Op.READ
            if lane.waiting or lane.changing or (lane.reading and not reads):
                lane.waiting.append(request)
                return False
            lane.changing, lane.reading = not reads, lane.reading + reads
        return True

    def _advance(self, handle: int, lane: _Lane) -> None:
        while lane.waiting and not lane.changing:
            reads = lane.waiting[0].op is Op.READ
            if not reads and lane.reading:
                return
            lane.changing, lane.reading = not reads, lane.reading + reads
            self._start(lane.waiting.popleft())
        if not lane.waiting and not lane.changing and not lane.reading:
            self._lanes.pop(handle, None)

    def _start(self, request: _Request) -> None:
        self._ready.put(request)
        if self._free:
            self._free -= 1
        elif self._threads < THREADS:
            self._threads += 1
            self.times.start(self._serve)
        else:
            self._behind += 1

    # -- doing them --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (request := self._ready.get()) is not None:
            with self._lock:
                if self._closed:
                    continue
                self._working += 1
            self._finished(request, self._perform(request))
            with self._lock:
                if self._behind:
                    self._behind -= 1
                else:
                    self._free += 1

    def _perform(self, request: _Request) -> Answer | None:
        """The answer; None where it has to be waited for."""
        op, unique = request.op, request.unique
        try:
            if op is Op.READ:
                data = self._methods[op](unique, *request.values)[0]
                return frames.reading(unique, len(data)), data
            if op is Op.MARK:
                assert self._work.journal is not None
                self._work.journal.mark(request.values[0])
                return (frames.answer(op, unique),)
            return (frames.answer(op, unique, *self._methods[op](unique, *request.values)),)
        except Waits:
            return None
        except OSError as error:
            return (frames.refusal(op, unique, error.errno or errno.EIO),)
        except ValueError:
            return (frames.refusal(op, unique, errno.EINVAL),)
        except Exception:
            traceback.print_exc()
            return (frames.refusal(op, unique, errno.EIO),)

    def _finished(self, request: _Request, done: Answer | None) -> None:
        with self._idle:
            self._working -= 1
            if done is None:
                self._wait(request)
            else:
                self._running.discard(request.unique)
                if request.op not in _HARMLESS:
                    self._remember(request, done[0])
                if not self._closed:
                    self._next_after(request)
            if self._closed:
                self._idle.notify_all()
        leases = self._work.leases
        if done is None:
            return
        if leases is None or request.op not in _MEETS:
            self._send(done)
            return
        leases.send_before(done, self._send)
        if request.op is Op.UNLINK_NAMES:
            leases.rearm_names(request.values[0], [name for (name,) in request.values[1]])
        for path in request.values[: _REMOVES.get(request.op, 0)]:
            leases.rearm(path)

    def _remember(self, request: _Request, done: bytes | memoryview) -> None:
        self._answers[request.unique] = bytes(done) if len(done) < 1024 else _without_data(request.op, bytes(done))
        if len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)

    def _next_after(self, request: _Request) -> None:
        if request is self._barrier:
            self._barrier = None
            held, self._held = self._held, deque()
            for one in held:
                if self._enter(one):
                    self._start(one)
            return
        lane = self._lanes.get(request.handle) if request.handle else None
        if lane is not None:
            if request.op is Op.READ:
                lane.reading -= 1
            else:
                lane.changing = False
            self._advance(request.handle, lane)
        self._maybe_mark()

    def _maybe_mark(self) -> None:
        """Do the mark that is waited for, when all before it is done; a lock that is waited for is not before it."""
        waiting = len(self._held) + len(self._locking) + 1
        if self._barrier is not None and self._barrier.op is Op.MARK and len(self._running) == waiting:
            self._start(self._barrier)

    # -- locks that are waited for -----------------------------------------------------------------------

    def _wait(self, request: _Request) -> None:
        if self._closed:
            self._running.discard(request.unique)
            return
        self._locking.append(request)
        lane = self._lanes.get(request.handle)
        if lane is not None:  # whoever waits for a lock may be read and written beside it
            lane.changing = False
            self._advance(request.handle, lane)
        self._maybe_mark()
        if not self._watching:
            self._watching = True
            self.times.start(self._watch)

    def _watch(self) -> None:
        freed = self._work.locks.freed
        while True:
            freed.wait(AGAIN)
            freed.clear()
            with self._lock:
                if not self._locking or self._closed:
                    self._watching = False
                    return
                again, self._locking = self._locking, []
                for request in again:
                    if self._barrier is not None:
                        self._locking.append(request)
                        continue
                    lane = self._lanes.setdefault(request.handle, _Lane())
                    lane.waiting.appendleft(request)
                    self._advance(request.handle, lane)

    def _give_up_waiting(self, request: _Request) -> None:
        """A program that releases a lock which it waits for does not want it any more."""
        handle, owner, _, _, start, length = request.values
        with self._lock:
            given_up = [
                one for one in self._locking if [*one.values[:2], *one.values[4:]] == [handle, owner, start, length]
            ]
            self._locking = [one for one in self._locking if one not in given_up]
            for one in given_up:
                self._running.discard(one.unique)
        for one in given_up:
            self._send((frames.refusal(one.op, one.unique, errno.EINTR),))

    # -- answering ---------------------------------------------------------------------------------------

    def _send(self, parts: Answer, connection: socket.socket | None = None) -> None:
        """Send an answer, if there is anybody; it is asked for again when there is not."""
        to = connection if connection is not None else self._connection
        if to is None:
            return
        try:
            with self._sending:
                if len(parts) == 1:
                    to.sendall(parts[0])
                else:
                    _send_parts(to, parts)
        except OSError:
            _shut(to)


def _send_parts(to: socket.socket, parts: Answer) -> None:
    sent = to.sendmsg(parts)
    for part in parts:
        if sent < len(part):
            to.sendall(memoryview(part)[sent:])
        sent = max(sent - len(part), 0)


def _without_data(op: Op, done: bytes) -> bytes:
    """An answer to be remembered: an OPEN's without the content that came with it."""
    if op is not Op.OPEN:
        return done
    _, _, _, unique = frames.header(done)
    return frames.answer(op, unique, *frames.values_of("as", done[frames.HEADER :])[:1], b"")


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
