"""Where the node is that a user's tools talk to.

The first of: the address given, `$POOLNODE_ADDRESS`, the socket of the user's own node, the socket of the
machine's node. It only looks whether sockets exist; connecting is the client's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pool.config.places import state_directory
from pool.decimals import has_digits_only
from pool.errors import PoolError

__all__ = ["NoPool", "find_address", "normal", "state_directory"]

SOCKET = "node.sock"
SYSTEM_RUN = Path("/run/poolnode")


class NoPool(PoolError):
    """No node was found, or none answers."""


def find_address(
    given: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    uid: int | None = None,
    exists: Callable[[Path], bool] = Path.exists,
) -> str:
    """The address of the node to talk to.

    Raises:
        NoPool: there is no address and no socket; the message says which were looked for.
    """
    environ = os.environ if environ is None else environ
    uid = os.getuid() if uid is None else uid
    named = given or environ.get("POOLNODE_ADDRESS")
    if named:
        return normal(named)
    own = state_directory(environ, uid, exists) / SOCKET
    for socket in (own, SYSTEM_RUN / SOCKET):
        if exists(socket):
            return f"unix://{socket.absolute()}"
    raise NoPool(
        f"no node runs here: there is no socket {own}",
        hint="start one with `poolnode --roles collector,negotiator,schedd,startd`, use `poolnode run FILE`, "
        "or name one with --address",
    )


def normal(address: str) -> str:
    """An address with its scheme: a path becomes `unix://`, `host:port` becomes `tcp://`.

    Raises:
        NoPool: it is neither.
    """
    if "://" in address or address.startswith("local:"):
        return address
    if "/" in address:
        return f"unix://{Path(address).absolute()}"
    host, colon, port = address.rpartition(":")
    if colon and host and has_digits_only(port):
        return f"tcp://{address}"
    raise NoPool(
        f"'{address}' is not an address",
        hint="give tcp://HOST:PORT, HOST:PORT, or the path of a node's socket",
    )
