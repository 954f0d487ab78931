"""The user's terminal, or standard files, joined to a shell in a running job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from pool.client.shells import run_shell
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

#: Bytes that are read from the terminal at a time.
PIECE = 16384


async def shell_here(pool: Pool, job: tuple[int, int], command: str, *, terminal: bool, node: int = 0) -> int:
    """A shell in a job, on this process's terminal or standard files; its exit code."""
    kind = os.environ.get("TERM", "dumb") if terminal else ""
    with contextlib.ExitStack() as raw:

        def connected() -> None:
            if terminal:
                raw.enter_context(_raw_terminal())

        return await run_shell(
            pool,
            job,
            _inputs(terminal),
            _write_all,
            command=command,
            terminal=terminal,
            kind=kind,
            node=node,
            connected=connected,
        )


def _write_all(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Each key goes to the job as it is, Ctrl-C too."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed before is not lost
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


async def _inputs(terminal: bool) -> AsyncIterator[Any]:
    """The keys typed, and the sizes of the window; a thread reads, since standard input may be a file."""
    loop, items = asyncio.get_running_loop(), asyncio.Queue[Any](64)

    def pass_on_input(item: Any) -> None:
        asyncio.run_coroutine_threadsafe(items.put(item), loop).result()

    def read() -> None:
        escape = Escape()
        with contextlib.suppress(RuntimeError, OSError):  # the loop is closed
            while data := os.read(0, PIECE):
                if terminal and escape.ends(data):
                    pass_on_input(LEFT)
                    return
                pass_on_input(data)
            pass_on_input(None)

    def resized() -> None:
        size = os.get_terminal_size(0)
        with contextlib.suppress(asyncio.QueueFull):
            items.put_nowait((size.lines, size.columns))

    if terminal:
        resized()
        loop.add_signal_handler(signal.SIGWINCH, resized)
    threading.Thread(target=read, name="standard input", daemon=True).start()
    try:
        while (item := await items.get()) is not LEFT:
            yield item
        raise PoolError("the connection was ended by ~.")
    finally:
        if terminal:
            loop.remove_signal_handler(signal.SIGWINCH)


LEFT = object()


class Escape:
    """Finds a tilde and a full stop after the beginning of a line, in what is typed."""

    def __init__(self) -> None:
        self._last = b"\r"

    def ends(self, data: bytes) -> bool:
        """Whether the user ends the connection with these bytes."""
        both = self._last + data
        self._last = both[-2:]
        return b"\r~." in both or b"\n~." in both
