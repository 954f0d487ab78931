"""Images between stores: only what lacks travels, and nothing the other side says is believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.images import ImageDamaged, ImageError, ImageStore, Manifest, receive_image, send_image
from pool.images.chunks import compress, digest_of
from pool.images.manifest import CHUNK
from tests.images.test_store import contents, image

END = object()


class Pipe:
    """Both ends of a stream in memory."""

    def __init__(self, there: asyncio.Queue[Any], back: asyncio.Queue[Any]) -> None:
        self._there, self._back = there, back
        self.sent: list[Any] = []

    async def send(self, item: Any) -> None:
        self.sent.append(item)
        await self._there.put(item)

    async def finish(self) -> None:
        await self._there.put(END)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (item := await self._back.get()) is not END:
            yield item


def pipes() -> tuple[Pipe, Pipe]:
    one: asyncio.Queue[Any] = asyncio.Queue(4)
    other: asyncio.Queue[Any] = asyncio.Queue(4)
    return Pipe(one, other), Pipe(other, one)


async def carry(source: ImageStore, manifest: Manifest, target: ImageStore) -> tuple[int, Manifest]:
    near, far = pipes()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        sending = group.create_task(send_image(source, manifest, near))
        receiving = group.create_task(receive_image(target, manifest.job, far))
    return sending.result(), receiving.result()


async def test_an_image_goes_over_and_the_next_sends_only_what_changed(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    source = image(tmp_path / "image", 1, 8 * CHUNK)
    first = here.keep("1.0", source, 1.0, kernel="6.18")
    sent, kept = await carry(here, first, there)
    assert kept == first
    assert sent == here.used == there.used
    with (source / "memory").open("r+b") as handle:
        handle.write(b"dirty")
    second = here.keep("1.0", source, 2.0)
    sent, _ = await carry(here, second, there)
    assert sent < 1.1 * CHUNK
    there.restore(there.manifest("1.0"), tmp_path / "back")
    assert contents(tmp_path / "back") == contents(source)
    assert (await carry(here, second, there))[0] == 0


async def test_the_pace_is_kept(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    manifest = here.keep("1.0", image(tmp_path / "image", 1), 1.0)
    asked: list[int] = []

    async def pace(size: int) -> None:
        asked.append(size)

    near, far = pipes()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send_image(here, manifest, near, pace))
        group.create_task(receive_image(there, "1.0", far))
    assert sum(asked) == sending.result() == here.used


async def lie(target: ImageStore, *items: Any) -> None:
    near, far = pipes()

    async def say() -> None:
        for item in items:
            await near.send(item)
        await near.finish()

    async with asyncio.timeout(20):
        saying = asyncio.create_task(say())
        hearing = asyncio.create_task(_drain(near))
        try:
            await receive_image(target, "1.0", far)
        finally:
            saying.cancel()
            hearing.cancel()


async def _drain(stream: Pipe) -> None:
    async for _ in stream:
        pass


async def test_lies_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    manifest = here.keep("1.0", image(tmp_path / "image", 1), 1.0)
    stranger = here.keep("2.0", image(tmp_path / "other", 2), 1.0)
    wanted = next(manifest.digests())
    other = compress(b"something else")
    for error, items in (
        (ImageDamaged, [b"nonsense", ["manifest"]]),
        (ImageDamaged, [stranger.pack(), ["manifest"]]),
        (ImageDamaged, [manifest.pack(), ["manifest"], [wanted, other]]),
        (ImageDamaged, [manifest.pack(), ["manifest"], [digest_of(b"something else"), other]]),
        (ImageDamaged, [manifest.pack(), ["manifest"], [wanted, b"not packed"]]),
        (ImageError, [manifest.pack(), ["manifest"], [wanted, here.packed(wanted)]]),
        (ImageError, [manifest.pack()[:100]]),
    ):
        with pytest.raises(error):
            await lie(there, *items)
        assert (there.used, there.jobs()) == (0, [])
