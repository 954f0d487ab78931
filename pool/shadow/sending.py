"""Sending files over a stream: ["dir", name, mode], ["file", name, mode, size] and then its bytes, ["hole", length].

Ranges of a file that were never written are not sent either: a hole stays one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from pool.errors import PoolError
from pool.shadow.files import FileStatus, UserFiles
from pool.wire import Stream


async def send_tree(
    path: str,
    files: UserFiles,
    stream: Stream,
    *,
    mode: int | None = None,
    under: str = "",
    called: str = "",
    there: Callable[[str, FileStatus], bool] = lambda name, status: False,
) -> None:
    """Send a file, or a directory with all that is in it; of a path that ends with a slash what is in it only.

    Args:
        mode: of the file there; its own by default.
        under: the directory that it comes to there.
        called: its name there; its own by default.
        there: whether the other side has a file already.

    Raises:
        PoolError: something cannot be read, or changes meanwhile.
    """
    contents_only = path.endswith("/")
    path = path.rstrip("/") or "/"
    status = await files.stat(path)
    name = posixpath.join(under, called or posixpath.basename(path))
    if status.is_dir:
        inner = under if contents_only else name
        if not contents_only:
            await stream.send(["dir", name, status.mode])
        for entry in await files.listdir(path):
            await send_tree(posixpath.join(path, entry), files, stream, under=inner, there=there)
        return
    if there(name, status):
        return
    await stream.send(["file", name, mode if mode is not None else status.mode, status.size])
    await send_contents(path, status.size, files, stream)


async def send_contents(path: str, size: int, files: UserFiles, stream: Stream) -> None:
    """Send so many bytes of a file, and its holes.

    Raises:
        PoolError: it cannot be read, or has become shorter.
    """
    left = size
    async for piece in files.pieces(path, size):
        if isinstance(piece, int):
            await stream.send(["hole", min(piece, left)])
            left -= min(piece, left)
        elif left:
            await stream.send(piece[:left])
            left -= len(piece[:left])
        if not left:
            break
    if left:
        raise PoolError(f"{path} became shorter while it was sent", retry=True)
