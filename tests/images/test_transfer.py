"""Images between stores: only what lacks travels, and nothing the other side says is believed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.images import (
    Assembly,
    EarlyTransfer,
    ImageDamaged,
    ImageError,
    ImageStore,
    Manifest,
    ask_chunks,
    fetch_image,
    lay_pieces,
    receive_image,
    send_chunks,
    send_image,
    send_pieces,
)
from pool.images.chunks import compress, digest_of
from pool.images.manifest import CHUNK, HOLE
from tests.e2e.support import until
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

    def raise_limit(self, size: int) -> None:
        """A queue here is as long as it is."""

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
    first = here.store_image("1.0", source, 1.0, kernel="6.18")
    sent, kept = await carry(here, first, there)
    assert kept == first
    assert sent == here.used == there.used
    with (source / "memory").open("r+b") as handle:
        handle.write(b"dirty")
    second = here.store_image("1.0", source, 2.0)
    sent, _ = await carry(here, second, there)
    assert sent < 1.1 * CHUNK
    there.restore(there.manifest("1.0"), tmp_path / "back")
    assert contents(tmp_path / "back") == contents(source)
    assert (await carry(here, second, there))[0] == 0


async def test_the_pace_is_kept(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    manifest = here.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    asked: list[int] = []

    async def pace(size: int) -> None:
        asked.append(size)

    near, far = pipes()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send_image(here, manifest, near, pace))
        group.create_task(receive_image(there, "1.0", far))
    assert sum(asked) == sending.result() == here.used


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_is_kept_before_what_it_needs_is_done(tmp_path: Path, fails: bool) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    manifest = here.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    told: list[Manifest] = []

    async def announced(coming: Manifest) -> None:
        told.append(coming)
        await until(lambda: there.used, "all of it to come beside this")
        assert there.generations("1.0") == []
        if fails:
            raise ImageError("the disk of its files failed")

    near, far = pipes()
    async with asyncio.timeout(20):
        sending = asyncio.ensure_future(send_image(here, manifest, near))
        try:
            await receive_image(there, "1.0", far, announced=announced)
        except ImageError:
            assert fails
        assert (there.generations("1.0") == []) == fails
        sending.cancel() if fails else await sending
    assert told == [manifest]


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
    manifest = here.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    stranger = here.store_image("2.0", image(tmp_path / "other", 2), 1.0)
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


# -- to be restored, from wherever the chunks are ------------------------------------------------------------


class Restoring:
    """A machine that fetches an image from the submit side, with another machine that is asked first."""

    def __init__(self, tmp_path: Path) -> None:
        self.home, self.here = ImageStore(tmp_path / "home"), ImageStore(tmp_path / "here")
        self.image = self.home.store_image("1.0", image(tmp_path / "image", 1, 8 * CHUNK), 1.0)
        self.directory = tmp_path / "restored"
        self.came: list[int] = []

    async def fetch(self, nearer: Any = None) -> int:
        """The bytes that came from the submit side."""
        near, far = pipes()

        async def ask(assembly: Assembly) -> None:
            await nearer(assembly)
            self.came.append(assembly.received)

        with Assembly(self.directory) as assembly:
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                sending = group.create_task(send_image(self.home, self.image, near))
                group.create_task(fetch_image(self.here, "1.0", far, assembly, ask if nearer else None))
        return sending.result()

    def whole(self, tmp_path: Path) -> bool:
        want = {name: data for name, (data, _) in contents(tmp_path / "image").items()}
        return {name: data for name, (data, _) in contents(self.directory).items()} == want


@pytest.fixture
def restoring(tmp_path: Path) -> Restoring:
    return Restoring(tmp_path)


async def test_it_is_put_together_from_home(restoring: Restoring, tmp_path: Path) -> None:
    assert await restoring.fetch() == restoring.home.used
    assert restoring.whole(tmp_path)
    assert restoring.here.used == 0


async def test_what_lies_here_does_not_come(restoring: Restoring, tmp_path: Path) -> None:
    restoring.here.store_image("2.0", tmp_path / "image", 1.0)
    assert await restoring.fetch() == 0
    assert restoring.whole(tmp_path)


async def test_the_machine_before_is_asked_first(restoring: Restoring, tmp_path: Path) -> None:
    before = ImageStore(tmp_path / "before")
    before.store_image("1.0", tmp_path / "image", 1.0)

    async def nearer(assembly: Assembly) -> None:
        near, far = pipes()
        async with asyncio.TaskGroup() as group:
            group.create_task(send_chunks(before, frozenset(restoring.image.digests()), near))
            group.create_task(ask_chunks(far, assembly, 5.0))

    assert await restoring.fetch(nearer) == 0
    assert restoring.came == [restoring.home.used]
    assert restoring.whole(tmp_path)


@pytest.mark.parametrize("how", ["garbage", "another", "half", "nothing", "no bytes"])
async def test_home_has_what_the_machine_before_does_not_give(restoring: Restoring, tmp_path: Path, how: str) -> None:
    digests = list(restoring.image.digests())
    other = b"something else"
    said: dict[str, list[Any]] = {
        "garbage": [[digests[0], b"no zstd"]],
        "another": [[digests[0], compress(other)]],
        "half": [[digests[0], restoring.home.packed(digests[0])]],
        "nothing": [],
        "no bytes": [["x", 7]],
    }

    async def nearer(assembly: Assembly) -> None:
        near, far = pipes()
        for item in said[how]:
            await near.send(item)
        if how != "nothing":
            await near.finish()
        with contextlib.suppress(ImageDamaged, TimeoutError):
            await ask_chunks(far, assembly, 0.1)

    sent = await restoring.fetch(nearer)
    assert restoring.came == [len(restoring.home.packed(digests[0])) if how == "half" else 0]
    assert sent == restoring.home.used - restoring.came[0]
    assert restoring.whole(tmp_path)


async def test_chunks_of_another_image_are_not_given(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    mine = store.store_image("1.0", image(tmp_path / "mine", 1), 1.0)
    other = store.store_image("2.0", image(tmp_path / "other", 2), 1.0)
    near, far = pipes()
    await far.send(["want", [next(other.digests())]])
    await far.send(["all"])
    with pytest.raises(ImageError, match="not of this checkpoint"):
        await send_chunks(store, frozenset(mine.digests()), near)
    assert near.sent == []


# -- ahead of its manifest -----------------------------------------------------------------------------------


async def sent_ahead(store: ImageStore, source: Path, target: ImageStore) -> tuple[int, Manifest, Pipe]:
    """Put a directory down and send it at the same time."""
    near, far = pipes()
    ahead = EarlyTransfer(store, near)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        receiving = group.create_task(receive_image(target, "1.0", far, renumber=True))
        with store.begin("1.0") as draft:
            draft.on_piece = lambda name, index, digest: ahead.add_chunk(digest)
            manifest = await asyncio.to_thread(lambda: draft.commit(draft.add_file(source), 1.0))
        sent = await ahead.finish(manifest)
    return sent, receiving.result(), near


async def test_chunks_go_ahead_of_their_manifest(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    source = image(tmp_path / "image", 1, 40 * CHUNK)
    sent, kept, near = await sent_ahead(here, source, there)
    assert sent == here.used == there.used
    kinds = [item[0] if isinstance(item, list) else "manifest" for item in near.sent]
    assert kinds.count("offer") == 3
    assert kinds.index("manifest") > len(kinds) - 4  # nothing was left to come after it
    assert there.manifest("1.0") == kept


async def test_what_the_other_side_has_is_offered_and_not_sent(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    source = image(tmp_path / "image", 1, 20 * CHUNK)
    there.store_image("2.0", source, 1.0)
    sent, kept, _ = await sent_ahead(here, source, there)
    assert sent == 0
    assert kept.parts == there.manifest("2.0").parts


async def test_what_was_sent_ahead_of_nothing_stays_nowhere(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    near, far = pipes()
    kept = here.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    ahead = EarlyTransfer(here, near)
    receiving = asyncio.ensure_future(receive_image(there, "1.0", far))
    for digest in [*kept.digests()] * 20:
        ahead.add_chunk(digest)
    async with asyncio.timeout(20):
        await until(lambda: there.used, "a chunk to come")
        ahead.cancel()
        await near.finish()
        with pytest.raises(ImageDamaged):
            await receiving
    assert there.used == 0
    assert there.jobs() == []


async def test_a_chunk_ahead_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    there = ImageStore(tmp_path / "there")
    near, far = pipes()
    await near.send([digest_of(b"x"), compress(b"x")])
    with pytest.raises(ImageDamaged, match="not asked for"):
        await receive_image(there, "1.0", far)
    assert there.used == 0


# -- laid where it belongs before there is a manifest ----------------------------------------------------------


async def laid(store: ImageStore, directory: Path, pieces: list[tuple[str, int, bytes]]) -> Assembly:
    """The rest of an image when these of its chunks were sent."""

    async def made() -> AsyncIterator[list[tuple[str, int, bytes]]]:
        yield pieces

    near, far = pipes()
    assembly = Assembly(directory)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(send_pieces(store, made(), near))
        group.create_task(lay_pieces(far, assembly, lambda: None))
    return assembly


def pieces_of(manifest: Manifest) -> list[tuple[str, int, bytes]]:
    return [
        (part.name, index, digest)
        for part in manifest.parts
        for index, digest in enumerate(part.chunks)
        if digest != HOLE
    ]


async def test_what_came_ahead_need_not_come_again(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    source = image(tmp_path / "image", 1, 20 * CHUNK + 5)
    (source / "twice").write_bytes((source / "memory").read_bytes()[:CHUNK])
    manifest = here.store_image("1.0", source, 1.0)
    assembly = await laid(here, tmp_path / "back", pieces_of(manifest)[:-1])
    with assembly:
        assert assembly.begin(manifest, there) == []  # the last is "twice": it is had from the file that it is in
    assert {name: data for name, (data, _) in contents(tmp_path / "back").items()} == {
        name: data for name, (data, _) in contents(source).items()
    }


async def test_what_the_manifest_says_otherwise_is_written_over(tmp_path: Path) -> None:
    here, there = ImageStore(tmp_path / "here"), ImageStore(tmp_path / "there")
    source = image(tmp_path / "image", 1)
    manifest = here.store_image("1.0", source, 1.0)
    known = pieces_of(manifest)
    first = next(digest for name, index, digest in known if (name, index) == ("memory", 0))
    wrong = [("memory", 1, first), ("memory", 4, first), ("empty", 2, first), ("deep/more", 0, first)]
    assembly = await laid(here, tmp_path / "back", [("memory", 0, first), *wrong])
    with assembly:
        missing = assembly.begin(manifest, there)
        assert sorted(missing) == sorted({digest for _, _, digest in known} - {first})
        assembly.write_chunks([(digest, here.packed(digest)) for digest in missing])
    assert {name: data for name, (data, _) in contents(tmp_path / "back").items()} == {
        name: data for name, (data, _) in contents(source).items()
    }


@pytest.mark.parametrize(
    ("name", "index", "named"),
    [*((name, 0, b"x") for name in ("../x", "/x", "a/../b", "")), ("x", -1, b"x"), ("x", 2**40, b"x"), ("x", 0, b"")],
)
def test_a_chunk_that_belongs_nowhere_is_refused(tmp_path: Path, name: str, index: int, named: bytes) -> None:
    with Assembly(tmp_path / "back") as assembly, pytest.raises(ImageDamaged):
        assembly.write_early([(name, index, digest_of(named), compress(b"x"))])
    assert not (tmp_path / "back").exists()
