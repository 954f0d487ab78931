"""A connection as its users see it. It is implemented in `endpoint` (over a transport) and `local`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pool.wire.errors import WireError
from pool.wire.identity import Identity
from pool.wire.stream import Stream


class Connection(ABC):
    """A connection to another node, a user's tool, or this node itself.

    Attributes:
        identity: who is on the other side.
        address: where it leads, for people.
        closed: done when the connection is gone; its result is the reason, None after a close in peace.
    """

    identity: Identity
    address: str
    closed: asyncio.Future[WireError | None]

    @abstractmethod
    async def call(self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0) -> Any:
        """Call and wait for the result.

        Args:
            timeout: seconds; it travels with the call. None waits for as long as the connection lasts.

        Raises:
            RemoteError: the method raised, or was refused.
            DeadlineExceeded: no answer in time; it may have been done.
            ConnectionLost: it may have been done.
            LocalFault: the parameters cannot travel.
        """

    @abstractmethod
    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell, without an answer; silently nothing on a connection that is gone. Notifications start in
        order."""

    @abstractmethod
    async def stream(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Stream:
        """Open a stream. Its errors show when it is used. After `timeout` seconds the other side ends it."""

    @abstractmethod
    async def close(self) -> None:
        """Close; what is under way is lost on both sides."""
