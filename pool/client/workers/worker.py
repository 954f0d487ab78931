"""The program of an executor's worker: a job that connects to its executor and performs calls, one after the other.

It needs Python's standard library alone, since it is copied to the job: `python worker.py CONFIG JOB`. CONFIG is a file
in JSON: `unix` (a socket's path) and `tcp` (host and port), of which the first that answers is taken; `secret`,
`certificate` (of the TCP side, PEM), `path` (for `sys.path`), `ship` (an archive of modules), `directory` (to work in).

A frame is a head (bytes of the body; bytes of the blob; 1 if the blob is a memory file that comes with the frame), the
body (a pickled list of messages) and the blob (large buffers, one after the other). To the worker:

    ("call", number, function, mode, data, sizes)   function: its number; mode: 0 one call, 1 a list of calls
    ("function", number, data), ("forget", number)
    ("recall",)                 give back the calls that have not begun: answered by ("returned", numbers)
    ("cancel", number)          interrupt a call, or forget it: answered like a call
    ("held", numbers)           after a connection: the calls that are still wanted of those that the worker has
    ("end",)                    exit

From the worker: first its facts in JSON, then ("value", number, data, sizes), ("error", number, data, text),
("interrupted", number), ("returned", numbers), ("progress", number, data).

A lost connection is made again: the job may have moved to another machine. A call that runs goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

HEAD = struct.Struct("<QQB")
#: Buffers of at least so many bytes travel beside the pickle.
LARGE = 65536
#: Results that are sent together at most, and the milliseconds for which one waits for others.
TOGETHER, LINGER = 64, 5
#: Seconds between attempts to connect again, and how often; then the executor is gone for good.
PAUSE, TRIES = 0.5, 240
#: Seconds that an interrupted call has before the worker's process begins anew without it.
GRACE = 2.0
Message = tuple[Any, ...]


class CallInterrupted(BaseException):
    """Raised in a call whose future was cancelled."""


def pack(value: Any, dumps: Callable[..., bytes] = pickle.dumps) -> tuple[bytes, list[memoryview]]:
    """A pickle, and the large buffers that go beside it."""
    large: list[memoryview] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not in one piece
            return True
        if raw.nbytes < LARGE:
            return True
        large.append(raw)
        return False

    return dumps(value, protocol=5, buffer_callback=beside), large


def unpack(data: bytes, sizes: Sequence[int], blob: memoryview | None) -> Any:
    """The value of a pickle and of its buffers, which stay where they are."""
    if not sizes:
        return pickle.loads(data)
    buffers, at = [], 0
    for size in sizes:
        assert blob is not None
        buffers.append(blob[at : at + size])
        at += _padded(size)
    return pickle.loads(data, buffers=buffers)


def blob_size(buffers: Iterable[memoryview]) -> int:
    """Bytes of a blob of these buffers."""
    return sum(_padded(buffer.nbytes) for buffer in buffers)


def _padded(size: int) -> int:
    return size + -size % 64


def memory_file(buffers: Sequence[memoryview]) -> int:
    """A memory file with these buffers, for another process of this machine."""
    made = os.memfd_create("poolnode call", os.MFD_CLOEXEC)
    try:
        os.ftruncate(made, blob_size(buffers))
        at = 0
        for buffer in buffers:
            done = 0
            while done < buffer.nbytes:
                done += os.pwrite(made, buffer[done:], at + done)
            at += _padded(buffer.nbytes)
    except BaseException:
        os.close(made)
        raise
    return made


def mapped(file: int, size: int) -> memoryview:
    """The bytes of a memory file, private to this process where it changes them. Closes the file.

    Raises:
        ValueError: it is shorter than `size`.
    """
    try:
        if os.fstat(file).st_size < size:
            raise ValueError("the memory file is too short")
        return memoryview(mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    finally:
        os.close(file)


def connect_unix(path: str) -> socket.socket:
    """A connection to a socket, whose path may be longer than such an address."""
    directory, name = os.path.split(path)
    place = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(f"/proc/self/fd/{place}/{name}")
    except BaseException:
        made.close()
        raise
    finally:
        os.close(place)
    return made


def _is_to_wait(error: OSError) -> bool:
    """Whether a socket is only not ready; the errors of `ssl` are known by their names, since it may not be loaded."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


class ExecutorLink:
    """The worker's side of the connection. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket, wake: int) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._secure = connection.family != socket.AF_UNIX
        self._sending = threading.Lock()
        self._using = threading.Lock()  # OpenSSL is not used by two threads at a time
        self._wake = wake
        self._read = bytearray()
        self._files: deque[int] = deque()
        self._linger: int | None = None

    def close(self) -> None:
        self._socket.close()
        for file in self._files:
            os.close(file)
        self._files.clear()

    def introduce(self, facts: dict[str, Any]) -> None:
        """Send the first frame, in JSON: the executor unpickles nothing before it has seen the secret."""
        body = json.dumps(facts).encode()
        with self._sending:
            self._write(HEAD.pack(len(body), 0, 0) + body)

    def send(self, messages: Sequence[Message], buffers: Sequence[memoryview] = ()) -> None:
        """Send one frame.

        Raises:
            OSError: the connection is lost.
        """
        body = pickle.dumps(messages, protocol=5)
        size = blob_size(buffers)
        with self._sending:
            if not buffers or self._secure:
                self._write(HEAD.pack(len(body), size, 0) + body)
                for buffer in buffers:
                    self._write(buffer)
                    self._write(bytes(-buffer.nbytes % 64))
                return
            file = memory_file(buffers)
            try:
                self._write(HEAD.pack(len(body), size, 1) + body, [file])
            finally:
                os.close(file)

    def _write(self, data: bytes | memoryview, files: list[int] | None = None) -> None:
        rest = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        while rest.nbytes:
            try:
                with self._using:
                    if files:
                        done = socket.send_fds(self._socket, [rest], files)
                        files = None
                    else:
                        done = self._socket.send(rest)
                rest = rest[done:]
            except OSError as error:
                if not _is_to_wait(error):
                    raise
                self._ready(select.POLLIN if type(error).__name__ == "SSLWantReadError" else select.POLLOUT)

    def _ready(self, events: int) -> None:
        waits = select.poll()
        waits.register(self._socket, events)
        waits.poll()

    def _read_some(self, idle: Callable[[], None]) -> None:
        """Read what has come, at least something. `idle`: called some milliseconds after it was woken."""
        while True:
            try:
                with self._using:
                    if self._secure:
                        data = self._socket.recv(262144)
                    else:
                        data, files, _, _ = socket.recv_fds(self._socket, 262144, 16)
                        self._files.extend(files)
                if not data:
                    raise ConnectionError("the executor closed the connection")
                self._read += data
                return
            except OSError as error:
                if not _is_to_wait(error):
                    raise
            waits = select.poll()
            waits.register(self._socket, select.POLLIN)
            waits.register(self._wake, select.POLLIN)
            ready = waits.poll(self._linger)
            if any(number == self._wake for number, _ in ready):
                os.read(self._wake, 4096)
                self._linger = LINGER
            elif not ready:
                self._linger = None
                idle()

    def _read_exactly(self, size: int, idle: Callable[[], None]) -> bytearray:
        while len(self._read) < size:
            self._read_some(idle)
        taken = self._read[:size]
        del self._read[:size]
        return taken

    def receive(self, idle: Callable[[], None]) -> tuple[list[Message], memoryview | None]:
        """The next frame: its messages, and their buffers.

        Raises:
            OSError: the connection is lost.
        """
        size, blob, passed = HEAD.unpack(self._read_exactly(HEAD.size, idle))
        messages: list[Message] = pickle.loads(self._read_exactly(size, idle))
        if not blob:
            return messages, None
        if not passed:
            return messages, memoryview(self._read_exactly(blob, idle))
        if not self._files:
            raise ConnectionError("a memory file is missing")
        return messages, mapped(self._files.popleft(), blob)


def _dumps(value: Any, **how: Any) -> bytes:
    """Pickle with cloudpickle where that is, which is loaded only here."""
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return pickle.dumps(value, **how)
    return bytes(cloudpickle.dumps(value, **how))


class CallWorker:
    """Performs calls in the main thread, while another receives."""

    def __init__(self, config: dict[str, Any], job: str) -> None:
        self._config = config
        self._job = job
        self._link: ExecutorLink | None = None
        self._changed = threading.Condition()
        self._calls: deque[Message] = deque()
        self._online = self._over = False
        self._functions: dict[int, Any] = {}
        self._packed: dict[int, bytes] = {}
        self._results: list[Message] = []
        self._results_lock = threading.Lock()
        self._running: int | None = None
        self._unanswered: int | None = None  # performed, and its answer is not sent
        self._receiver: threading.Thread | None = None
        self._unwanted: int | None = None
        self._wake_read, self._wake = os.pipe()

    # -- the main thread ---------------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until the executor ends it. The process's exit status."""
        signal.signal(signal.SIGUSR1, self._on_interrupt)
        if not self._connect(TRIES):
            print("the executor cannot be reached from here", file=sys.stderr)
            return 75
        self._receiver = threading.Thread(target=self._receive, name="receiver", daemon=True)
        self._receiver.start()
        while True:
            with self._changed:
                while not self._over and not (self._calls and self._online):
                    self._changed.wait()
                if self._over:
                    return 0
                call = self._calls.popleft()
                self._running = call[1]
            try:
                self._perform(call)
            except CallInterrupted:  # before it had begun, or behind its end
                self._running = None
                self._answer(("interrupted", call[1]), ())

    def _perform(self, call: Message) -> None:
        _, number, function, mode, data, sizes, blob = call
        buffers: Sequence[memoryview] = ()
        answer: Message
        try:
            called = self._function(function)
            given, named = unpack(data, sizes, blob)
            del call, blob
            value = [called(*each) for each in given] if mode else called(*given, **named)
            del given, named
            packed, buffers = self._pack(value)
            answer = ("value", number, packed, [buffer.nbytes for buffer in buffers])
        except CallInterrupted:
            answer = ("interrupted", number)
        except BaseException as error:
            answer = ("error", number, *packed_error(error, _dumps))
        finally:
            self._unanswered = number
            self._running = None
        self._answer(answer, buffers)
        self._unanswered = None

    def _function(self, number: int) -> Any:
        if number not in self._functions:
            self._functions[number] = pickle.loads(self._packed[number])
        return self._functions[number]

    def _pack(self, value: Any) -> tuple[bytes, list[memoryview]]:
        if value is None or type(value) in (int, float, str, bytes, bool):
            return pickle.dumps(value, protocol=5), []
        return pack(value, _dumps)

    def _answer(self, answer: Message, buffers: Sequence[memoryview]) -> None:
        if buffers:
            self._flush()
            self._send([answer], buffers)
            return
        with self._results_lock:
            self._results.append(answer)
            count = len(self._results)
        if count >= TOGETHER or not self._calls:
            self._flush()
        elif count == 1:
            os.write(self._wake, b"r")  # the receiver sends it if the next call takes long

    def _flush(self) -> None:
        with self._results_lock:
            results, self._results = self._results, []
        if results and not self._send(results):
            with self._results_lock:
                self._results[:0] = results

    def _send(self, messages: list[Message], buffers: Sequence[memoryview] = ()) -> bool:
        """Send a frame. False: the connection is lost, and this is the thread that makes it again."""
        if threading.current_thread() is self._receiver:
            try:
                assert self._link is not None
                self._link.send(messages, buffers)
            except OSError:
                return False
            return True
        while True:
            with self._changed:
                while not self._online and not self._over:
                    self._changed.wait()
                link = self._link
            if self._over or link is None:
                return True
            try:
                link.send(messages, buffers)
                return True
            except OSError:
                self._lost(link)

    def _lost(self, link: ExecutorLink) -> None:
        with self._changed:
            if self._link is link:
                self._online = False

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._unwanted is not None and self._unwanted == self._running:
            self._unwanted = None
            raise CallInterrupted

    # -- the receiver's thread ---------------------------------------------------------------------------------

    def _receive(self) -> None:
        while not self._over:
            link = self._link
            assert link is not None
            try:
                messages, blob = link.receive(self._flush)
            except (OSError, EOFError, ValueError, pickle.UnpicklingError):
                self._lost(link)
                link.close()
                if not self._connect(TRIES):
                    os._exit(0)  # the executor is gone, and nobody waits for the call that runs
                continue
            for message in messages:
                self._obey(message, blob)

    def _connect(self, tries: int) -> bool:
        pause = threading.Event()
        for turn in range(tries):
            if turn:
                pause.wait(PAUSE)
            with contextlib.suppress(OSError, ValueError, EOFError, pickle.UnpicklingError):
                link = ExecutorLink(self._dialled(), self._wake_read)
                with self._changed:
                    held = [call[1] for call in self._calls]
                    facts = {
                        "secret": self._config["secret"],
                        "job": self._job,
                        "host": socket.gethostname(),
                        "pid": os.getpid(),
                        "python": list(sys.version_info[:3]),
                        "running": self._running,
                        "held": held,
                        "answered": [*(answer[1] for answer in self._results), self._unanswered],
                    }
                link.introduce(facts)
                self._link = link
                messages, _ = link.receive(lambda: None)
                for message in messages:
                    self._obey(message, None)
                with self._changed:
                    self._online = True
                    self._changed.notify_all()
                os.write(self._wake, b"r")  # results may have waited
                return True
        return False

    def _dialled(self) -> socket.socket:
        path, address = self._config["unix"], self._config["tcp"]
        if path is not None:
            try:
                return connect_unix(path)
            except OSError:
                if address is None:
                    raise
        import ssl  # not loaded where the executor's machine is this one

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the certificate is the executor's own, and the only one that counts
        context.load_verify_locations(cadata=self._config["certificate"])
        plain = socket.create_connection((address[0], address[1]), timeout=10)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise

    def _obey(self, message: Message, blob: memoryview | None) -> None:
        kind = message[0]
        if kind == "call":
            with self._changed:
                self._calls.append((*message, blob))
                self._changed.notify()
        elif kind == "function":
            self._packed[message[1]] = message[2]
        elif kind == "forget":
            self._packed.pop(message[1], None)
            self._functions.pop(message[1], None)
        elif kind == "recall":
            with self._changed:
                left = [call[1] for call in self._calls]
                self._calls.clear()
            self._send([("returned", left)])
        elif kind == "held":
            wanted = set(message[1])
            with self._changed:
                self._calls = deque(call for call in self._calls if call[1] in wanted)
                running = self._running
            if running is not None and running not in wanted:
                self._interrupt(running)
        elif kind == "cancel":
            with self._changed:
                kept = deque(call for call in self._calls if call[1] != message[1])
                found, self._calls = len(kept) < len(self._calls), kept
                running = self._running
            if found:
                self._send([("interrupted", message[1])])
            elif running is not None and running == message[1]:
                self._interrupt(running)
        elif kind == "end":
            self._end()

    def _interrupt(self, number: int) -> None:
        self._unwanted = number
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        timer = threading.Timer(GRACE, self._begin_anew, (number,))
        timer.daemon = True
        timer.start()

    def _begin_anew(self, number: int) -> None:
        """Run this program again in the same process: a call cannot be interrupted."""
        if self._running == number:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
            running = self._running
        if running is not None:
            os._exit(0)

    def progress(self, value: Any) -> None:
        """Report how far the call that runs is."""
        if self._running is not None:
            self._send([("progress", self._running, _dumps(value))])


def packed_error(error: BaseException, dumps: Callable[..., bytes] = pickle.dumps) -> tuple[bytes, str]:
    """A pickled exception, and its traceback in words. One that cannot be pickled becomes a RuntimeError."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        data = dumps(error)
        if not isinstance(pickle.loads(data), BaseException):
            raise TypeError("it does not come back as an exception")
    except BaseException:
        data = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data, text


_worker: CallWorker | None = None


def report_progress(value: Any) -> None:
    """In a call: tell the executor how far it is, as `future.progress`. Elsewhere nothing happens."""
    if _worker is not None:
        _worker.progress(value)


def main(arguments: Sequence[str]) -> int:
    """`CONFIG JOB`: run as a worker."""
    global _worker
    with open(arguments[0], encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    path = [*config["path"], *([os.path.abspath(config["ship"])] if config["ship"] else [])]
    sys.path[:] = [*path, *(each for each in sys.path[1:] if each not in path)]
    if config["directory"]:
        with contextlib.suppress(OSError):
            os.chdir(config["directory"])
    sys.modules["pool.client.workers.worker"] = sys.modules[__name__]
    _worker = CallWorker(config, arguments[1])
    return _worker.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
