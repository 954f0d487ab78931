"""A shell in a running job, from the user's side: bytes in, bytes out, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from pool.client.patience import Patience
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.wire import Stream

#: Seconds for a job that has just been given a machine to begin.
STARTS = 20.0

#: An input of a shell: bytes, the window's (rows, columns), or None at the end of input.
ShellInput = bytes | tuple[int, int] | None


async def run_shell(
    pool: Pool,
    job: tuple[int, int],
    inputs: AsyncIterator[ShellInput],
    output: Callable[[bytes], None],
    *,
    command: str = "",
    terminal: bool = False,
    kind: str = "",
    node: int = 0,
    connected: Callable[[], None] = lambda: None,
) -> int:
    """Run a shell in a job until it has ended; its exit code, or 128 and the signal's number.

    Args:
        inputs: what it reads.
        output: called with what it writes.
        command: a command line for /bin/sh; an interactive shell if it is empty.
        terminal: it has a terminal, of that `kind` ($TERM).
        node: the part of a job of several.
        connected: called when the shell is there.

    Raises:
        PoolError: there is no such job of the user's, it does not run, or there can be no shell in it.
    """
    wish = {"terminal": terminal, "type": kind, "command": command}
    params = {"id": list(job), "node": node, "shell": wish}
    patience = Patience(STARTS)
    while True:
        began = False
        try:
            async with pool.streaming("schedd.shell", params) as stream:
                if await stream.receive() != "connected":
                    raise PoolError("the other side is no shell", hint="the node may be of another version")
                began = True
                connected()
                return await _carry(stream, inputs, output)
        except EOFError:
            raise PoolError("the shell's connection has ended", retry=True) from None
        except PoolError as error:
            if began:
                raise
            await patience.wait(error)  # the job may just be starting


async def _carry(stream: Stream, inputs: AsyncIterator[ShellInput], output: Callable[[bytes], None]) -> int:
    async def feed() -> None:
        async for item in inputs:
            await stream.send(list(item) if isinstance(item, tuple) else item)

    async def show() -> int:
        async for item in stream:
            if isinstance(item, bytes):
                output(item)
            elif isinstance(item, dict):
                return _exit_code(item)
        raise PoolError("the shell's connection has ended", retry=True)

    feeding, showing = asyncio.ensure_future(feed()), asyncio.ensure_future(show())
    try:
        await asyncio.wait((feeding, showing), return_when=asyncio.FIRST_COMPLETED)
        if feeding.done() and not showing.done():
            feeding.result()  # the user has ended the connection, or there is no more input
        return await showing
    finally:
        for task in (feeding, showing):
            task.cancel()
        await asyncio.gather(feeding, showing, return_exceptions=True)


def _exit_code(end: dict[str, Any]) -> int:
    code, signal = end.get("code"), end.get("signal")
    return code if isinstance(code, int) else 128 + signal if isinstance(signal, int) else 255
