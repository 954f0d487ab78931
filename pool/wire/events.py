"""Events of the protocol core: one class for each thing that the other side can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from pool.wire.errors import RemoteError, WireError


@dataclass(slots=True)
class Hello:
    """The other side has introduced itself; `send_hello` answers if it connected to us."""

    said: dict[str, Any]


@dataclass(slots=True)
class Request:
    """To be answered by `reply`, once. `seconds` are left until its deadline, None without one."""

    number: int
    method: str
    params: Any
    seconds: float | None


@dataclass(slots=True)
class Reply:
    """The answer to a request of ours. `dropped`: we had given it up."""

    number: int
    error: RemoteError | None
    result: Any
    dropped: bool


@dataclass(slots=True)
class Notification:
    """Not to be answered."""

    method: str
    params: Any


@dataclass(slots=True)
class Cancel:
    """The other side gives up a request that we have not answered; it is to be answered all the same."""

    number: int


@dataclass(slots=True)
class StreamOpened:
    """To be closed by `end`."""

    number: int
    method: str
    params: Any
    seconds: float | None


@dataclass(slots=True)
class StreamItem:
    """An item, and the bytes to give back as credit once it is used."""

    number: int
    item: Any
    size: int


@dataclass(slots=True)
class StreamCredit:
    """More may be sent."""

    number: int


@dataclass(slots=True)
class StreamFinished:
    """The other side sends no more items."""

    number: int


@dataclass(slots=True)
class StreamEnded:
    """The other side is done with the stream. On a stream that it opened, `end` is to follow."""

    number: int
    error: RemoteError | None


@dataclass(slots=True)
class Closed:
    """Nothing more comes. None: the other side has left in peace."""

    reason: WireError | None


Event: TypeAlias = (
    Hello
    | Request
    | Reply
    | Notification
    | Cancel
    | StreamOpened
    | StreamItem
    | StreamCredit
    | StreamFinished
    | StreamEnded
    | Closed
)
