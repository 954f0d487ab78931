"""How far a transfer of a job's files is: a stream that counts the bytes of files that go through it."""

from __future__ import annotations

from typing import Any, Self


class CountedStream:
    """A staging stream (`staging.ItemStream`), and the bytes of files that have gone through it in either direction."""

    def __init__(self, stream: Any) -> None:
        self.bytes = 0
        self._stream = stream

    async def send(self, item: Any) -> None:
        await self._stream.send(item)
        self._count(item)

    async def finish(self) -> None:
        await self._stream.finish()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        self._count(item)
        return item

    def _count(self, item: Any) -> None:
        if isinstance(item, bytes):
            self.bytes += len(item)
