"""Another node of the pool, asked through the user's own: for users without a token to show there (`pool.queries`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pool.wire import Connection, Stream, WireError


class ThroughNode(Connection):
    """Sends each question to the user's own node, which asks the other node, or refuses in words.

    Args:
        own: the connection to the user's own node; closing this one leaves it open.
        address: of the other node.
    """

    def __init__(self, own: Connection, address: str) -> None:
        self.identity = own.identity
        self.address = address
        self.closed: asyncio.Future[WireError | None] = own.closed
        self._own = own

    async def call(self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0) -> Any:
        return await self._own.call("node.forward", self._question(method, params), timeout=timeout)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Nothing: the own node only asks."""

    async def stream(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Stream:
        return await self._own.stream("node.forward_stream", self._question(method, params), timeout=timeout)

    async def close(self) -> None:
        """Nothing is open but the connection to the own node, which is another's to close."""

    def _question(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        return {"at": self.address, "method": method, "params": dict(params or {})}
