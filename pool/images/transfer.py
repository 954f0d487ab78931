"""An image on its way from one store to another: to the submit side, to a checkpoint server, or straight on.

    sender    ["offer", [digests ...]] ahead, if it likes  receiver   ["want", [digests ...]] for each
              [digest, packed] ... for each wanted
              manifest bytes ... ["manifest"]                         ["want", [digests ...]] ... ["all"]
              [digest, packed] ... for each wanted                    ["kept", generation] once it has it

Only chunks that the other side lacks travel, compressed as they lie on disk. The other side is not trusted: chunks are
checked against their names, and a manifest counts for the one job that the receiver expects. A receiver that restores
the image asks a nearer source for the chunks first, where there is one (`send_chunks`). It may have received them while
the image was put together, with the place of each (`send_pieces`), and then lacks little or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from typing import Any, Generic, Protocol, Self, TypeVar

from pool.images.assembling import Assembly, Piece
from pool.images.drafts import Draft
from pool.images.errors import ImageDamaged, ImageError
from pool.images.manifest import DIGEST, Manifest
from pool.images.priority import run_low_priority
from pool.images.store import ImageStore
from pool.wire.parameter_checks import DIGESTS, check_item

PIECE = 256 * 1024
#: Digests in one item; keeps items far below a frame.
BATCH = 4096
#: Chunks that are read or written in one go, and so many goes that may lie in memory at a time.
TOGETHER, AT_ONCE = 16, 3
#: Bytes of chunks that may be on their way beyond what a stream allows of itself.
AHEAD = 4 * 2**20
#: Offers ahead of a manifest that wait for their answers.
OFFERS = 4
#: The largest manifest taken in: an image of about 800 GB.
LARGEST_MANIFEST = 64 * 2**20

T = TypeVar("T")
Pace = Callable[[int], Awaitable[None]]
#: Has an assembly's missing chunks put into it from nearer than the submit side, as far as they are to be had there.
Nearer = Callable[[Assembly], Awaitable[None]]


class Items(Protocol):
    """The part of a wire stream that carrying uses."""

    async def send(self, item: Any) -> None: ...
    async def finish(self) -> None: ...
    def raise_limit(self, size: int, /) -> None: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...


async def send_image(store: ImageStore, manifest: Manifest, stream: Items, pace: Pace | None = None) -> int:
    """Send a checkpoint; returns the bytes of chunks that travelled once the other side has all of it.

    Args:
        pace: awaited with the bytes about to be sent, for a bound on the share of the network.

    Raises:
        ImageGone: it was dropped meanwhile.
        ImageError: the other side ended in the middle.
    """
    return await _send_rest(store, manifest, stream, aiter(stream), pace)


async def _send_rest(
    store: ImageStore, manifest: Manifest, stream: Items, answers: AsyncIterator[Any], pace: Pace | None
) -> int:
    data = manifest.pack()
    for place in range(0, len(data), PIECE):
        await stream.send(data[place : place + PIECE])
    await stream.send(["manifest"])
    wanted = await _read_wanted(answers)
    sent = await _send_pieces(store, wanted, stream, pace)
    await stream.finish()
    async for item in answers:
        if isinstance(item, list) and item[:1] == ["kept"]:
            return sent
    raise ImageError(f"the other side did not keep checkpoint {manifest.generation} of job {manifest.job}", retry=True)


async def send_chunks(store: ImageStore, allowed: Container[bytes], stream: Items, pace: Pace | None = None) -> int:
    """Answer somebody who asks for chunks alone, as `ask_chunks` does; returns the bytes sent.

    Args:
        allowed: the digests that may be asked for.

    Raises:
        ImageError: one was asked for that may not be, or is gone.
    """
    wanted = await _read_wanted(aiter(stream))
    if any(digest not in allowed for digest in wanted):
        raise ImageError("a chunk was asked for that is not of this checkpoint")
    sent = await _send_pieces(store, wanted, stream, pace)
    await stream.finish()
    return sent


async def send_pieces(
    store: ImageStore, made: AsyncIterator[list[tuple[str, int, bytes]]], stream: Items, pace: Pace | None = None
) -> None:
    """Send the chunks of an image as they are made, each with the file and the index there that it belongs to.

    Raises:
        ImageError: one is gone.
    """
    async for some in made:
        packed = await run_low_priority(_read, store, [digest for _, _, digest in some])
        for place, data in zip(some, packed, strict=True):
            if pace is not None:
                await pace(len(data))
            await stream.send([*place, data])
    await stream.finish()


async def lay_pieces(stream: Items, assembly: Assembly, came: Callable[[], None]) -> None:
    """The other end of `send_pieces`.

    Args:
        came: called with each batch that comes.

    Raises:
        ImageDamaged: something else came. ImageError: the disk fails.
    """
    some: list[Piece] = []
    stream.raise_limit(AHEAD)
    async with _Laying(assembly.write_early) as laying:
        async for piece in stream:
            if not _is_piece(piece, (str, int, bytes, bytes)):
                raise ImageDamaged("something else came than a piece of a checkpoint")
            some.append(tuple(piece))
            if len(some) == TOGETHER:
                await laying.add_batch(some)
                some = []
                came()
        if some:
            await laying.add_batch(some)


def _is_piece(item: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(item, list) and len(item) == len(kinds) and all(map(isinstance, item, kinds))


async def _read_wanted(answers: AsyncIterator[Any]) -> list[bytes]:
    wanted: list[bytes] = []
    async for item in answers:
        if item == ["all"]:
            return wanted
        wanted += check_item(item, {"want": (DIGESTS,)})[1]
    raise ImageError("the other side did not say what it lacks", retry=True)


async def _send_pieces(store: ImageStore, wanted: list[bytes], stream: Items, pace: Pace | None) -> int:
    sent = 0
    for place in range(0, len(wanted), TOGETHER):
        some = wanted[place : place + TOGETHER]
        for digest, packed in zip(some, await run_low_priority(_read, store, some), strict=True):
            if pace is not None:
                await pace(len(packed))
            await stream.send([digest, packed])
            sent += len(packed)
    return sent


def _read(store: ImageStore, digests: list[bytes]) -> list[bytes]:
    return store.packed_all(digests)


async def receive_image(
    store: ImageStore,
    job: str,
    stream: Items,
    *,
    renumber: bool = False,
    announced: Callable[[Manifest], Awaitable[None]] | None = None,
    kept: Callable[[Manifest], Awaitable[None]] | None = None,
    tentative: Callable[[Manifest], Awaitable[Manifest]] | None = None,
) -> Manifest:
    """Take in a checkpoint of a job from another store.

    Args:
        renumber: give it the next number here, whatever it had there.
        announced: runs while the rest of it comes; nothing is kept before it is done, nor where it fails.
        kept: awaited when it is on disk, before the other side hears of that.
        tentative: has what came made a part of another checkpoint instead, which it answers when that is on disk; until
            then all chunks of it stay.

    Asked again for one that is here already, it keeps nothing twice and says that it is kept.

    Raises:
        ImageDamaged: what came is not what was announced.
        NoRoom: nothing of it stays.
        ImageError: the other side ended in the middle; nothing of it stays.
    """
    stream.raise_limit(AHEAD)
    items = aiter(stream)
    draft = store.begin(job)
    try:
        manifest = await _announced(_receive_early(items, draft, stream), job)
        known = manifest.generation in store.generations(job)
        if known and not renumber and store.manifest(job, manifest.generation) == manifest:
            await stream.send(["all"])
            await _confirm(stream, manifest)
            return manifest
        async with _background(announced(manifest) if announced is not None else None):
            missing = await run_low_priority(draft.missing, manifest)
            await _request_chunks(stream, missing)
            wanted = set(missing)
            async with _Laying(functools.partial(_add_chunks, draft)) as laying:
                async for some in _pieces(items):
                    if any(digest not in wanted for digest, _ in some):
                        raise ImageDamaged("a chunk came that was not asked for")
                    await laying.add_batch(some)
                    wanted.difference_update(digest for digest, _ in some)
            if wanted:
                raise ImageError(f"the checkpoint of job {job} ended in the middle", retry=True)
        if tentative is not None:
            taken = await tentative(manifest)
        else:
            taken = await run_low_priority(
                draft.commit,
                manifest.parts,
                manifest.created,
                generation=None if renumber else manifest.generation,
                needs=manifest.needs,
                facts=manifest.facts,
            )
    finally:
        await asyncio.shield(run_low_priority(draft.close))  # not in the loop: a place may be far away
    if kept is not None:
        await kept(taken)
    await _confirm(stream, taken)
    return taken


@contextlib.asynccontextmanager
async def _background(work: Awaitable[None] | None) -> AsyncIterator[None]:
    """Has something done beside what is inside, and done at its end; given up where that fails."""
    task = asyncio.ensure_future(work) if work is not None else None
    try:
        yield
        if task is not None:
            await task
    finally:
        if task is not None and not task.done():
            task.cancel()


async def _receive_early(items: AsyncIterator[Any], draft: Draft, stream: Items) -> AsyncIterator[Any]:
    """Take in what is offered ahead of the manifest; gives the rest."""
    asked: set[bytes] = set()
    some: list[tuple[bytes, bytes]] = []
    rest: list[Any] = []
    async with _Laying(functools.partial(_add_chunks, draft)) as laying:
        async for item in items:
            piece = _is_piece(item, (bytes, bytes))
            if piece:
                if item[0] not in asked:
                    raise ImageDamaged("a chunk came that was not asked for")
                asked.discard(item[0])
                some.append((item[0], item[1]))
            if some and (not piece or not asked or len(some) == TOGETHER):
                await laying.add_batch(some)
                some = []
            if piece:
                continue
            if isinstance(item, list) and item[:1] == ["offer"]:
                offered = [digest for digest in check_item(item, {"offer": (DIGESTS,)})[1] if digest not in asked]
                lacking = await run_low_priority(draft.lacks, offered)
                asked.update(lacking)
                await stream.send(["want", lacking])
            else:
                rest = [item]
                break
    for item in rest:
        yield item
    async for item in items:
        yield item


async def batches(made: asyncio.Queue[T | None]) -> AsyncIterator[list[T]]:
    """The items of a queue, TOGETHER at a time, until None comes."""
    some: list[T] = []
    while (one := await made.get()) is not None:
        some.append(one)
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some


class _Laying(Generic[T]):
    """Chunks that are put down while the next are on their way; a context manager that waits for the last.

    Args:
        put: takes a batch, in a thread.
    """

    def __init__(self, put: Callable[[list[T]], None]) -> None:
        self._add_chunks = put
        self._under_way: set[asyncio.Task[None]] = set()

    async def add_batch(self, some: list[T]) -> None:
        """Raises what an earlier batch came to."""
        self._under_way.add(asyncio.create_task(run_low_priority(self._add_chunks, some)))
        await self._wait(AT_ONCE - 1)

    async def _wait(self, most: int) -> None:
        while len(self._under_way) > most:
            done, self._under_way = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                await self._wait(0)
        finally:
            await asyncio.gather(*self._under_way, return_exceptions=True)


class EarlyTransfer:
    """A checkpoint that is on its way while it is still being put together.

    Args:
        stream: to `receive_image`.
    """

    def __init__(self, store: ImageStore, stream: Items, pace: Pace | None = None) -> None:
        self._store = store
        self._stream = stream
        self._pace = pace
        self._answers = aiter(stream)
        self._loop = asyncio.get_running_loop()
        self._made: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._offers: asyncio.Queue[bool] = asyncio.Queue(OFFERS)
        self._sent = 0
        self._task = self._loop.create_task(self._send())

    def add_chunk(self, digest: bytes) -> None:
        """There is one more chunk; from any thread."""
        self._loop.call_soon_threadsafe(self._made.put_nowait, digest)

    async def finish(self, manifest: Manifest) -> int:
        """It is whole: as `send_image`."""
        self._loop.call_soon_threadsafe(self._made.put_nowait, None)
        await self._task
        return self._sent + await _send_rest(self._store, manifest, self._stream, self._answers, self._pace)

    def cancel(self) -> None:
        """It will not be whole, or goes another way."""
        self._task.cancel()
        self._task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _send(self) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._offer())
                both.create_task(self._answer())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _offer(self) -> None:
        """Say what there is, several times before the first answer."""
        async for some in batches(self._made):
            await self._offers.put(True)
            await self._stream.send(["offer", some])
        await self._offers.put(False)

    async def _answer(self) -> None:
        """Send what is asked for of each offer."""
        while await self._offers.get():
            answer = await anext(self._answers, None)
            if answer is None:
                raise ImageError("the other side did not say what it lacks", retry=True)
            wanted = [bytes(digest) for digest in answer[1]]
            self._sent += await _send_pieces(self._store, wanted, self._stream, self._pace)


async def fetch_image(
    local: ImageStore, job: str, stream: Items, assembly: Assembly, nearer: Nearer | None = None
) -> Manifest:
    """Put a checkpoint that `send_image` sends into a directory, to be restored; nothing is kept in a store.

    Args:
        local: whose chunks need not come.
        nearer: asked for what is missing before the sender is.

    Raises:
        ImageDamaged, NoRoom, ImageError: it cannot be had.
    """
    stream.raise_limit(AHEAD)
    items = aiter(stream)
    manifest = await _announced(items, job)
    if await run_low_priority(assembly.begin, manifest, local) and nearer is not None:
        await nearer(assembly)
    await _request_chunks(stream, assembly.missing)
    if assembly.missing:
        await _fill(items, assembly)
    if assembly.missing:
        raise ImageError(f"the checkpoint of job {job} ended in the middle", retry=True)
    await _confirm(stream, manifest)
    return manifest


async def ask_chunks(stream: Items, assembly: Assembly, patience: float) -> None:
    """Ask for what an assembly lacks, and put in what comes.

    Args:
        patience: seconds without anything after which it is given up.

    Raises:
        ImageDamaged: something else came.
        ImageError: the disk fails.
        TimeoutError
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(patience) as timeout:
        stream.raise_limit(AHEAD)
        await _request_chunks(stream, assembly.missing)
        await stream.finish()
        async with _Laying(assembly.write_chunks) as laying:
            async for some in _pieces(aiter(stream)):
                await laying.add_batch(some)
                timeout.reschedule(loop.time() + patience)


async def _fill(items: AsyncIterator[Any], assembly: Assembly) -> None:
    async with _Laying(assembly.write_chunks) as laying:
        async for some in _pieces(items):
            await laying.add_batch(some)


async def _announced(items: AsyncIterator[Any], job: str) -> Manifest:
    data = bytearray()
    async for item in items:
        if not isinstance(item, bytes):
            break
        data += item
        if len(data) > LARGEST_MANIFEST:
            raise ImageError(f"the checkpoint of job {job} is larger than can be taken in")
    manifest = Manifest.unpack(bytes(data))
    if manifest.job != job:
        raise ImageDamaged(f"a checkpoint of job {manifest.job} came in place of one of job {job}")
    return manifest


async def _request_chunks(stream: Items, missing: list[bytes]) -> None:
    for place in range(0, len(missing), BATCH):
        await stream.send(["want", missing[place : place + BATCH]])
    await stream.send(["all"])


async def _confirm(stream: Items, manifest: Manifest) -> None:
    await stream.send(["kept", manifest.generation])
    await stream.finish()


async def _pieces(items: AsyncIterator[Any]) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    some: list[tuple[bytes, bytes]] = []
    async for item in items:
        if not _is_piece(item, (bytes, bytes)) or len(item[0]) != DIGEST:
            raise ImageDamaged("a chunk came that was not asked for")
        some.append((item[0], item[1]))
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some


def _add_chunks(draft: Draft, pieces: list[tuple[bytes, bytes]]) -> None:
    draft.add_chunks(pieces)
