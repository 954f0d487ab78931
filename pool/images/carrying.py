"""An image on its way from one store to another: to the submit side, to a checkpoint server, or straight on.

    sender    [manifest bytes ...] ["manifest"]            receiver   ["want", [digests ...]] ... ["all"]
              [digest, packed] ... for each wanted                    ["kept", generation] once it is on disk

Only what the other side lacks travels, compressed as it lies on disk. Nothing the other side says is believed: chunks
are looked at against their names, and a manifest counts for the one job that the receiver expects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from pool.images.errors import ImageDamaged, ImageError
from pool.images.manifest import DIGEST, Manifest
from pool.images.store import ImageStore

PIECE = 256 * 1024
#: Digests in one item; keeps items far below a frame.
BATCH = 4096
#: The largest manifest taken in: an image of about 800 GB.
LARGEST_MANIFEST = 64 * 2**20

Pace = Callable[[int], Awaitable[None]]


class Items(Protocol):
    """The part of a wire stream that carrying uses."""

    async def send(self, item: Any) -> None: ...
    async def finish(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...


async def send_image(store: ImageStore, manifest: Manifest, stream: Items, pace: Pace | None = None) -> int:
    """Send a checkpoint; returns the bytes of chunks that travelled once the other side has all of it on disk.

    Args:
        pace: awaited with the bytes about to be sent, for a bound on the share of the network.

    Raises:
        ImageGone: it was dropped meanwhile.
        ImageError: the other side ended in the middle.
    """
    data = manifest.pack()
    for place in range(0, len(data), PIECE):
        await stream.send(data[place : place + PIECE])
    await stream.send(["manifest"])
    sent = 0
    answers = aiter(stream)
    wanted: list[bytes] = []
    async for item in answers:
        if item[0] == "all":
            break
        wanted += item[1]
    else:
        raise ImageError("the other side did not say what it lacks", retry=True)
    for digest in wanted:
        packed = await asyncio.to_thread(store.packed, bytes(digest))
        if pace is not None:
            await pace(len(packed))
        await stream.send([bytes(digest), packed])
        sent += len(packed)
    await stream.finish()
    async for item in answers:
        if item[0] == "kept":
            return sent
    raise ImageError(f"the other side did not keep checkpoint {manifest.generation} of job {manifest.job}", retry=True)


async def receive_image(
    store: ImageStore,
    job: str,
    stream: Items,
    *,
    renumber: bool = False,
    kept: Callable[[Manifest], Awaitable[None]] | None = None,
) -> Manifest:
    """Take in a checkpoint of a job from another store.

    Args:
        renumber: give it the next number here, whatever it had there.
        kept: awaited when it is on disk, before the other side hears of that.

    Asked again for one that is here already, it keeps nothing twice and says that it is kept.

    Raises:
        ImageDamaged: what came is not what was announced.
        NoRoom: nothing of it stays.
        ImageError: the other side ended in the middle; nothing of it stays.
    """
    data = bytearray()
    items = aiter(stream)
    async for item in items:
        if not isinstance(item, bytes):
            break
        data += item
        if len(data) > LARGEST_MANIFEST:
            raise ImageError(f"the checkpoint of job {job} is larger than can be taken in")
    manifest = Manifest.unpack(bytes(data))
    if manifest.job != job:
        raise ImageDamaged(f"a checkpoint of job {manifest.job} came in place of one of job {job}")
    known = manifest.generation in store.generations(job)
    if known and not renumber and store.manifest(job, manifest.generation) == manifest:
        await _kept(stream, manifest)
        return manifest
    with store.begin(job) as draft:
        missing = await asyncio.to_thread(draft.missing, manifest)
        for place in range(0, len(missing), BATCH):
            await stream.send(["want", missing[place : place + BATCH]])
        await stream.send(["all"])
        wanted = set(missing)
        async for item in items:
            digest, packed = item
            if not isinstance(digest, bytes) or len(digest) != DIGEST or digest not in wanted:
                raise ImageDamaged("a chunk came that was not asked for")
            await asyncio.to_thread(draft.put, digest, packed)
            wanted.discard(digest)
        if wanted:
            raise ImageError(f"the checkpoint of job {job} ended in the middle", retry=True)
        taken = await asyncio.to_thread(
            draft.commit,
            manifest.parts,
            manifest.created,
            generation=None if renumber else manifest.generation,
            needs=manifest.needs,
            facts=manifest.facts,
        )
    if kept is not None:
        await kept(taken)
    await stream.send(["kept", taken.generation])
    await stream.finish()
    return taken


async def _kept(stream: Items, manifest: Manifest) -> None:
    await stream.send(["all"])
    await stream.send(["kept", manifest.generation])
    await stream.finish()
