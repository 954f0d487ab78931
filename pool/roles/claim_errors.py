"""The answer of a startd to a call that names a claim it does not have, and how a schedd recognises it."""

from __future__ import annotations

from pool.errors import PoolError
from pool.wire import RemoteError


class NoSuchClaim(PoolError):
    """The machine has no such claim, or it has ended and its job is being killed."""

    def __init__(self) -> None:
        super().__init__("there is no such claim on this machine", retry=True)


def says_no_such_claim(error: RemoteError) -> bool:
    """Whether a startd's answer was that it has no such claim."""
    return error.kind == NoSuchClaim.__name__
