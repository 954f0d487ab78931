"""The connection that the look-alike modules share: one for each process and node, made when it is first needed."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.sync import SyncPool

_open: dict[tuple[int, str | None], SyncPool] = {}
_lock = threading.Lock()


class LookProblem(Exception):
    """Each error of the modules; `HTCondorException`."""


class LookIOProblem(LookProblem, OSError, RuntimeError):
    """The pool does not answer, or refuses; `HTCondorIOError` of the older module."""


def connected(address: str | None = None) -> SyncPool:
    """The pool at an address; the user's own node by default.

    Raises:
        LookIOProblem: no node was found, or none answers.
    """
    from pool.client.sync import SyncPool
    from pool.compat.asking import _address

    key = (os.getpid(), address)
    with _lock:
        pool = _open.get(key)
        if pool is None:
            try:
                pool = _open[key] = SyncPool.connect(_address(address))
            except PoolError as error:
                raise LookIOProblem(str(error)) from error
        return pool


def call_pool(address: str | None, method: str, *arguments: Any, **named: Any) -> Any:
    """Call a method of the pool.

    Raises:
        LookIOProblem: it was refused, or nobody answers.
    """
    try:
        return getattr(connected(address), method)(*arguments, **named)
    except PoolError as error:
        raise LookIOProblem(str(error)) from error


def unable(what: str, instead: str) -> LookProblem:
    """The error for what the pool cannot do."""
    return LookProblem(f"{what} is not possible here; {instead}")
