"""The parts that every subcommand shares: how it runs, how it prints.

A subcommand is a plain function with typed options; it returns the exit status (None is 0). Errors are raised
as `PoolError` and printed as one line by `main`, never here. Nothing here imports more than the standard
library, because every command pays for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pool.cli.formats import WireAd, json_ad, long_ad
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

T = TypeVar("T")


class EndedBySignal(Exception):
    """A signal has ended the command, which has put everything in order; its exit status says so."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine to its end. Ctrl-C before it has begun leaves it without a warning, too."""
    try:
        import asyncio

        from pool.client.garbage import collect_rarely

        collect_rarely()
        return asyncio.run(work)
    finally:
        work.close()


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs what has much to do: on uvloop, whose import a short command would not earn back."""
    try:
        import uvloop

        return uvloop.run(work)
    finally:
        work.close()


def query_pool(
    address: str | None,
    question: Callable[[Pool], Coroutine[Any, Any, T]],
    *,
    working: str = "asking the pool",
) -> T:
    """Connects, asks, disconnects; a terminal shows that after a second, unless `working` is empty."""

    async def run_query() -> T:
        from pool.cli.progress import Working
        from pool.client.pool import Pool

        with Working(working):
            async with await Pool.connect(address) as pool:
                return await question(pool)

    return run(run_query())


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines in one write.

    Raises:
        PoolError: they cannot be written, as on a full disk.
    """
    text = "\n".join(lines)
    if text:
        with writing_output():
            sys.stdout.write(text + "\n")


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Says of a failed write that it was the output's."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has had enough
    except OSError as error:
        raise PoolError(f"cannot write the output: {error.strerror or error}") from error


def print_json(objects: Iterable[WireAd]) -> None:
    """Prints each object as one line of JSON."""
    import json

    encode = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "), default=str).encode
    print_lines(encode(item) for item in objects)


def print_ads(ads: Iterable[WireAd], *, as_json: bool) -> None:
    """Prints whole ads: as JSON, or in the long form with an empty line after each."""
    if as_json:
        print_json(map(json_ad, ads))
    else:
        print_lines(long_ad(ad) + "\n" for ad in ads)


def print_error(text: str) -> None:
    """A line for the person, not for the pipe: standard error."""
    print(text, file=sys.stderr, flush=True)


def on_terminal(stream: Any = None) -> bool:
    """Whether a person watches this stream (by default standard error): progress may be drawn there."""
    stream = stream or sys.stderr
    try:
        return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def names(attributes: str | None) -> list[str] | None:
    """Splits `A,B,..`."""
    return [name.strip() for name in attributes.split(",") if name.strip()] if attributes else None


def names_and_values(words: list[str] | None) -> list[str]:
    """Checks `NAME=VALUE` words from the command line.

    Raises:
        UsageProblem: one has no `=`.
    """
    for word in words or []:
        if not word.partition("=")[1] or word.startswith("="):
            from pool.cli.selection import UsageProblem

            raise UsageProblem(f"'{word}' is not NAME=VALUE", hint="one description file at a time")
    return list(words or [])
