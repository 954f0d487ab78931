"""How a schedd reads a startd's errors: it has no such claim, or nobody knows whether the call was done.

Between a schedd and a startd of two pools worlds pass calls on. When one of them loses the way after a call has left,
its caller gets an error that is as little a no as a broken connection would be.
"""

from __future__ import annotations

from pool.errors import PoolError
from pool.wire import ConnectionLost, DeadlineExceeded, RemoteError
from pool.wire.errors import Cancelled

#: Errors on the way of a call that was passed on, after which it may have been done.
_UNCLEAR = frozenset(kind.__name__ for kind in (ConnectionLost, DeadlineExceeded, Cancelled))


class NoSuchClaim(PoolError):
    """The machine has no such claim, or it has ended and its job is being killed."""

    def __init__(self) -> None:
        super().__init__("there is no such claim on this machine", retry=True)


def says_no_such_claim(error: RemoteError) -> bool:
    """Whether a startd's answer was that it has no such claim."""
    return error.kind == NoSuchClaim.__name__


def may_be_done(error: RemoteError) -> bool:
    """Whether the call may have been done though there is an error: its answer was lost between here and the startd."""
    return error.kind in _UNCLEAR
