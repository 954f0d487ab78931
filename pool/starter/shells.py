"""A shell in a running job (`poolnode ssh`): its terminal, as items of one stream of the protocol.

    user's terminal -- user's tool -- schedd -- startd -- terminal or socket of a process in the job, from its keeper

The job's side sends "connected", then bytes, then {"code": exit code} or {"signal": number}, then None. The user's side
sends bytes, [rows, columns] of the window, and None at the end of its input. When the stream ends the shell does, and
when the job ends, too. The keeper's side is `pool/checkpoint/keeper/shell.c`.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Mapping
from typing import Any, Protocol

from pool.errors import PoolError
from pool.wire import Stream
from pool.wire.parameter_checks import Check

#: The parameter `shell` of a call: {terminal, type, command}.
WISH = Check("a wish of a shell", lambda value: _is_wish(value))
#: The first item from the job's side.
CONNECTED = "connected"
#: Bytes of an item, and of a request.
PIECE, REQUEST = 64 << 10, 16383
#: Seconds for the shell to be there, and for its last output.
PATIENCE, LAST = 10.0, 0.3

_REASONS = {
    errno.ESRCH: "the job does not run",
    errno.EBUSY: "a checkpoint of the job is being made",
    errno.EMFILE: "the job has 16 shells already",
    errno.EOPNOTSUPP: "the job's remote files come by notifications on this machine, which a shell cannot have",
    errno.ENOENT: "the job has no /dev/ptmx, which a terminal needs",
}


def _is_wish(value: Any) -> bool:
    kinds = {"terminal": bool, "type": str, "command": str}
    return (
        isinstance(value, dict)
        and value.keys() == kinds.keys()
        and all(isinstance(value[name], kind) for name, kind in kinds.items())
    )


class ShellRefused(PoolError):
    """There is no shell in the job."""


class ShellKeeper(Protocol):
    """The keeper of a job."""

    def shell(self, fd: int, /) -> None: ...


class JobShell:
    """An open shell.

    Args:
        end: the terminal's master, or a stream; owned by this object.
        about: the keeper's socket, on which the shell's end is told; owned by this object.
    """

    def __init__(self, end: int, about: socket.socket, terminal: bool) -> None:
        self._end = end
        self._about = about
        self._terminal = terminal
        os.set_blocking(end, False)

    def close(self) -> None:
        """The shell and its processes end."""
        os.close(self._end)
        self._about.close()

    async def read(self) -> bytes:
        """The bytes that the shell has written; empty at the end."""
        while True:
            try:
                return os.read(self._end, PIECE)
            except BlockingIOError:
                await _until_ready(self._end, writes=False)
            except OSError:  # EIO: no process has the terminal any more
                return b""

    async def write(self, data: bytes) -> None:
        """Give the shell input.

        Raises:
            OSError: it reads no more.
        """
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._end, left) :]
            except BlockingIOError:
                await _until_ready(self._end, writes=True)

    async def end_input(self) -> None:
        """There is no more input."""
        if self._terminal:
            await self.write(b"\x04")
        else:
            with socket.socket(fileno=os.dup(self._end)) as stream:
                stream.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        """The size of the user's window."""
        if self._terminal:
            fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    async def ended(self) -> dict[str, int]:
        """How the shell has ended: its exit code, or the signal."""
        status = await asyncio.get_running_loop().sock_recv(self._about, 4)
        if len(status) < 4:
            return {"signal": 9}  # with the job
        code = os.waitstatus_to_exitcode(int.from_bytes(status, "little"))
        return {"code": code} if code >= 0 else {"signal": -code}


async def open_shell(keeper: ShellKeeper, wish: Mapping[str, Any]) -> JobShell:
    """Open a shell.

    Args:
        wish: `terminal`, whether it has one; `type`, the terminal's; `command`, a command line or "".

    Raises:
        ShellRefused: there can be none, or the keeper does not answer.
    """
    kind, command = str(wish["type"]), str(wish["command"])
    mode = "t" if wish["terminal"] else "p"
    request = "".join((mode, kind, "\0", command, "\0")).encode()
    if "\0" in kind + command or len(request) > REQUEST:
        raise ShellRefused(f"a command line has at most {REQUEST} bytes, and no NUL")
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setblocking(False)
    try:
        with far:
            near.send(request)
            keeper.shell(far.fileno())
        async with asyncio.timeout(PATIENCE):
            await _until_ready(near.fileno(), writes=False)
            data, ends = _answer(near)
    except (TimeoutError, OSError):
        near.close()
        raise ShellRefused("the job's keeper does not answer", retry=True) from None
    error = int.from_bytes(data[:4], "little") if len(data) >= 4 else errno.ESRCH
    if error or not ends:
        near.close()
        reason = _REASONS.get(error, os.strerror(error).lower())
        raise ShellRefused(f"there is no shell in the job: {reason}", retry=error == errno.EBUSY)
    return JobShell(ends[0], near, bool(wish["terminal"]))


def _answer(near: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    data, rights, _, _ = near.recvmsg(4, socket.CMSG_SPACE(fds.itemsize))
    for _, _, raw in rights:
        fds.frombytes(raw[: fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


async def carry_shell(stream: Stream, shell: JobShell) -> None:
    """Carry a shell until it has ended, or the stream has. It is closed then.

    Raises:
        ShellRefused: the user's side sent what is none of its items.
    """
    await stream.send(CONNECTED)
    out, into = asyncio.ensure_future(_out(stream, shell)), asyncio.ensure_future(_into(stream, shell))
    over = asyncio.ensure_future(shell.ended())
    tasks: list[asyncio.Future[Any]] = [out, into, over]
    try:
        await asyncio.wait((into, over), return_when=asyncio.FIRST_COMPLETED)
        if over.done():
            await asyncio.wait((out,), timeout=LAST)  # background processes may have the terminal still
            out.cancel()
            await asyncio.wait((out,))
            await stream.send(over.result())
            await stream.send(None)
        else:
            into.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shell.close()


async def _out(stream: Stream, shell: JobShell) -> None:
    while data := await shell.read():
        await stream.send(data)


async def _into(stream: Stream, shell: JobShell) -> None:
    """The user's items. Returns when the user has gone."""
    async for item in stream:
        with contextlib.suppress(OSError):  # it reads no more; its end is told by the keeper
            if isinstance(item, bytes):
                await shell.write(item)
            elif item is None:
                await shell.end_input()
            else:
                shell.resize(*_window(item))


def _window(item: object) -> tuple[int, int]:
    if isinstance(item, (list, tuple)) and len(item) == 2:
        rows, columns = item
        if type(rows) is int and type(columns) is int and 0 <= rows < 65536 and 0 <= columns < 65536:
            return rows, columns
    raise ShellRefused("a shell takes bytes, the window's size, and the end of input")


async def _until_ready(fd: int, *, writes: bool) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)
