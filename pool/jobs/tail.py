"""Where the last lines of a text begin, found from its end: a long output is not read to show ten lines of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

BLOCK = 64 * 1024


async def start_of(lines: int, size: int, read: Callable[[int, int], Awaitable[bytes]]) -> int:
    """The offset at which the last lines begin; an unfinished last line counts as one.

    Args:
        size: where the text ends now, bytes.
        read: returns the bytes from an offset on, so many (fewer where the text has become shorter).
    """
    if lines <= 0:
        return size
    end, found = size, 0
    while end > 0:
        start = max(0, end - BLOCK)
        block = await read(start, end - start)
        position = len(block)
        if end == size and block.endswith(b"\n"):
            position -= 1  # it ends the last line rather than beginning another
        while (position := block.rfind(b"\n", 0, position)) >= 0:
            found += 1
            if found == lines:
                return start + position + 1
        end = start
    return 0
