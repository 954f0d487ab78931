"""Sockets that another process sends."""

from __future__ import annotations

import array
import asyncio
import socket


async def passed_socket(near: socket.socket) -> socket.socket | None:
    """The socket that a process sends over `near`; None where it cannot make one.

    Raises:
        OSError: no answer comes.
    """
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(near.fileno(), came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(near.fileno())
    fds = array.array("i")
    data, rights, _, _ = near.recvmsg(4, socket.CMSG_SPACE(fds.itemsize))
    for _, _, raw in rights:
        fds.frombytes(raw[: fds.itemsize])
    if not data:
        raise OSError("no answer")
    return socket.socket(fileno=fds[0]) if fds else None
