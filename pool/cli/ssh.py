"""`ssh`: a shell in a running job; `attach`: a job's output and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pool.cli.common import Address, print_error, query_pool
from pool.cli.selection import one_job
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

#: Bytes that are read from the terminal at a time.
PIECE = 16384


def ssh(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job (12.3); or a cluster, for its first job.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] [COMMAND ...]", help="Run this with /bin/sh instead of a shell to type into."),
    ] = None,
    terminal: Annotated[
        bool | None,
        typer.Option(
            "--terminal/--no-terminal", "-t/-T", help="With one or without. Default: as here, none with a command."
        ),
    ] = None,
    node: Annotated[int, typer.Option("--node", min=0, metavar="N", help="Of a parallel job: node N.")] = 0,
    address: Address = None,
) -> int:
    """Open a shell inside a running job of yours.

    It sees what the job sees (files, processes, network, devices, environment), has the job's rights and limits,
    and counts as part of it. It ends with the job. While it is open the job is not checkpointed; a job that has to
    leave its machine ends it. Enter, ~ and . end the connection. The exit status is the shell's.

    \b
    Examples:
      poolnode ssh 12.3
      poolnode ssh 12.3 -- ls -l
      poolnode ssh 12 --node 1
      poolnode ssh 12.3 -- tar cz results > results.tar.gz
    """
    chosen = one_job(job)
    whole = chosen if len(chosen) == 2 else (chosen[0], 0)
    here = os.isatty(0) and os.isatty(1)
    wanted = (here and not command) if terminal is None else terminal
    if wanted and not os.isatty(0):
        raise PoolError("standard input is no terminal", hint="leave -t out")
    line = command[0] if command and len(command) == 1 else shlex.join(command or ())
    return query_pool(
        address, lambda pool: shell_here(pool, (whole[0], whole[1]), line, terminal=wanted, node=node), working=""
    )


async def shell_here(pool: Pool, job: tuple[int, int], command: str, *, terminal: bool, node: int = 0) -> int:
    """A shell in a job, on this process's terminal or standard files; its exit code."""
    from pool.client.shells import run_shell

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


def attach(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job (12.3); or a cluster, for its first job.")],
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="Begin so many lines before the end.")
    ] = 10,
    node: Annotated[int, typer.Option("--node", min=0, metavar="N", help="Of a parallel job: node N.")] = 0,
    address: Address = None,
) -> int:
    """Show a running job's output and errors as they come, until it has ended.

    Its output goes to standard output, its errors to standard error. The exit status is the job's, or 128 and the
    number of the signal that ended it; 1 if it was removed. Ctrl-C leaves the job alone.

    \b
    Examples:
      poolnode attach 12.3
      poolnode attach 12.3 --lines 0
    """
    chosen = one_job(job)
    cluster, proc = chosen if len(chosen) == 2 else (chosen[0], 0)

    async def follow(pool: Pool, file: str, to: int) -> None:
        async for piece in pool.tail(cluster, proc, file=file, lines=lines, node=node):
            os.write(to, piece)

    async def question(pool: Pool) -> int:
        ends = await asyncio.gather(follow(pool, "out", 1), follow(pool, "err", 2), return_exceptions=True)
        if all(isinstance(end, BaseException) for end in ends) and isinstance(ends[0], BaseException):
            raise ends[0]  # it may keep one of the two
        result = await pool.job(cluster, proc).result()
        if result.state == "completed":
            return 128 + result.signal if result.signal is not None else result.exit_code or 0
        print_error(f"poolnode: job {result.job} is {result.state}{': ' if result.reason else ''}{result.reason}")
        return 1

    sys.stdout.flush()
    return query_pool(address, question, working="")
