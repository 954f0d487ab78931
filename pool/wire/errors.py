"""The errors of the wire, split by whose fault they are.

    PoolError
    |- WireError
       |- ConnectionLost       nobody's: the connection is gone; whether the call was done is not known
       |  |- CannotConnect     nobody answers there, or the other side would not have us; nothing was done
       |- DeadlineExceeded     nobody's: no answer in time
       |- RemoteError          the method on the other side raised; `kind` names its error
       |- LocalFault           ours: a value that cannot travel, a frame over the bound, use after the end
       |- RemoteFault          theirs: bytes that are not the protocol; the connection is closed with it
       |- CallRefused          the answer of a side that does not run a method; travels as a RemoteError
          |- NoSuchRole        this node does not run that role (now: it may be starting again)
          |- NoSuchMethod      the role has no method of that name
          |- Malformed         the parameters are not what the method takes
          |- NotPermitted      the caller lacks the right that the method declares
          |- Cancelled         the caller gave up, or the role was stopped, before there was an answer

An error of a method travels as `[kind, message, hint, retry]`; `to_wire` and `from_wire` are that mapping.
"""

from __future__ import annotations

from typing import Any

from pool.errors import PoolError

INTERNAL = "InternalError"
LONGEST_TEXT = 8192


class WireError(PoolError):
    """Anything the wire reports."""


class ConnectionLost(WireError):
    """The connection is gone. Calls under way may or may not have been done."""

    def __init__(self, message: str = "the connection was lost", *, hint: str = "", retry: bool = True) -> None:
        super().__init__(message, hint=hint, retry=retry)


class CannotConnect(ConnectionLost):
    """No connection came about, so nothing was done."""


class DeadlineExceeded(WireError):
    """There was no answer in time. The call may have been done."""

    def __init__(self, message: str = "no answer in time", *, hint: str = "", retry: bool = True) -> None:
        super().__init__(message, hint=hint, retry=retry)


class RemoteError(WireError):
    """A method of the other side raised.

    Attributes:
        kind: the class name of what was raised there ("NotPermitted", "InternalError", ...).
    """

    def __init__(self, kind: str, message: str, hint: str = "", retry: bool = False) -> None:
        super().__init__(message, hint=hint, retry=retry)
        self.kind = kind


class LocalFault(WireError):
    """This side asked for something the protocol has no way of doing."""


class RemoteFault(WireError):
    """The other side sent what the protocol does not allow."""


class CallRefused(WireError):
    """The method was not run."""


class Malformed(CallRefused):
    """The parameters are not what the method takes."""


class NoSuchRole(CallRefused):
    """The node does not run that role."""


class NoSuchMethod(CallRefused):
    """The role has no such method."""


class NotPermitted(CallRefused):
    """The caller lacks the right."""


class Cancelled(CallRefused):
    """It was given up before there was an answer."""


def to_wire(error: BaseException | None) -> list[Any] | None:
    """How an error travels; anything that is not a `PoolError` is a defect and is not shown outside."""
    if error is None:
        return None
    if isinstance(error, PoolError):
        kind = error.kind if isinstance(error, RemoteError) else type(error).__name__
        return [kind, error.message[:LONGEST_TEXT], error.hint[:LONGEST_TEXT], error.retry]
    return [INTERNAL, "internal error", "the log of the other side says more", False]


def from_wire(value: object) -> RemoteError:
    """The error that travelled.

    Raises:
        RemoteFault: it is not in the form above.
    """
    match value:
        case [str(kind), str(message), str(hint), bool(retry)]:
            return RemoteError(kind, message, hint, retry)
    raise RemoteFault("an error is not [kind, message, hint, retry]")
