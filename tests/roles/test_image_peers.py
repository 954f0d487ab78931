"""A machine's offer of the images that it has sent to the submit side: one image for one ticket, and not for long."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest

from pool.images import BandwidthShare, ImageStore, Manifest
from pool.outside import OutsideWorld
from pool.roles.startd.images.image_peers import KEPT, ImagePeers
from pool.testing.loop import VirtualLoop
from pool.wire import Stream
from pool.wire.errors import CallRefused

#: The job whose images are offered.
JOB = ("head", "1.0")


class Asked:
    """A stream on which chunks are asked for."""

    def __init__(self, digests: list[bytes]) -> None:
        self._items: list[Any] = [["want", digests], ["all"]]
        self.sent: list[Any] = []

    async def send(self, item: Any) -> None:
        self.sent.append(item)

    async def finish(self) -> None:
        return

    async def __aiter__(self) -> Any:
        for item in self._items:
            yield item


class Machine:
    """The background tasks of the peers."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Any, name: str, *, alone: bool = False) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)


def peers_of(machine: Machine, store: ImageStore) -> ImagePeers:
    return ImagePeers(lambda schedd: store, BandwidthShare().wait_for_bytes, OutsideWorld().secret, machine.spawn)


def kept(store: ImageStore, directory: Path, job: str, seed: int) -> Manifest:
    directory.mkdir()
    (directory / "pages").write_bytes(random.Random(seed).randbytes(100_000))
    return store.store_image(job, directory, 1.0)


async def give(peers: ImagePeers, job: str, ticket: str, digests: list[bytes]) -> list[Any]:
    stream = Asked(digests)
    await peers.send_chunks({"job": job, "ticket": ticket}, cast(Stream, stream))
    return stream.sent


async def offered(tmp_path: Path, machine: Machine) -> tuple[ImagePeers, ImageStore, Manifest, str]:
    store = ImageStore(tmp_path / "store")
    peers = peers_of(machine, store)
    ticket = peers.ticket(JOB)
    image = kept(store, tmp_path / "image", "1.0", 1)
    peers.offer_image(JOB, store, image)
    store.drop("1.0")
    return peers, store, image, ticket


async def test_one_image_for_one_ticket_once(tmp_path: Path) -> None:
    machine = Machine()
    peers, store, image, ticket = await offered(tmp_path, machine)
    other = kept(store, tmp_path / "other", "2.0", 2)
    wanted = list(image.digests())
    for job, shown in (("1.0", "x"), ("1.0", ""), ("1.0", "\u00e9"), ("2.0", ticket), ("3.0", ticket)):
        with pytest.raises(CallRefused, match="no such checkpoint"):
            await give(peers, job, shown, wanted)
    with pytest.raises(Exception, match="not of this checkpoint"):
        await give(peers, "1.0", ticket, list(other.digests()))
    assert [digest for digest, _ in await give(peers, "1.0", ticket, wanted)] == wanted
    await machine.settle()
    with pytest.raises(CallRefused):
        await give(peers, "1.0", ticket, wanted)
    store.drop("2.0")
    assert store.used == 0


async def test_a_later_image_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    machine = Machine()
    peers, store, image, ticket = await offered(tmp_path, machine)
    again = peers.ticket(JOB)
    later = kept(store, tmp_path / "later", "1.0", 3)
    peers.offer_image(JOB, store, later)
    await machine.settle()
    store.drop("1.0")
    with pytest.raises(CallRefused):
        await give(peers, "1.0", ticket, list(image.digests()))
    assert len(await give(peers, "1.0", again, list(later.digests()))) == 1


async def test_what_is_offered_gives_way(tmp_path: Path) -> None:
    machine = Machine()
    peers, store, image, ticket = await offered(tmp_path, machine)
    peers.make_room()
    assert store.used
    store.quota = store.used + 1
    peers.make_room()
    await machine.settle()
    assert store.used == 0
    with pytest.raises(CallRefused):
        await give(peers, "1.0", ticket, list(image.digests()))


def test_it_is_not_kept_for_long(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine()
        peers, store, image, ticket = await offered(tmp_path, machine)
        await asyncio.sleep(KEPT + 1)
        await machine.settle()
        assert store.used == 0
        with pytest.raises(CallRefused):
            await give(peers, "1.0", ticket, list(image.digests()))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


# -- while it is made ------------------------------------------------------------------------------------------


class Sent(Asked):
    """A stream that chunks come by without being asked for."""

    def __init__(self) -> None:
        super().__init__([])
        self.began, self.over = asyncio.Event(), asyncio.Event()

    async def send(self, item: Any) -> None:
        await super().send(item)
        self.began.set()

    async def finish(self) -> None:
        self.over.set()


async def test_a_last_image_is_sent_while_it_is_made(tmp_path: Path) -> None:
    machine = Machine()
    store = ImageStore(tmp_path / "store")
    peers = peers_of(machine, store)
    ticket = peers.begin_last(JOB)
    for job, shown in (("1.0", "x"), ("1.0", ""), ("1.0", "\u00e9"), ("2.0", ticket)):
        with pytest.raises(CallRefused, match="no such checkpoint"):
            await peers.send_ahead({"job": job, "ticket": shown}, cast(Stream, Sent()))
    stream = Sent()
    giving = asyncio.ensure_future(peers.send_ahead({"job": "1.0", "ticket": ticket}, cast(Stream, stream)))
    image = kept(store, tmp_path / "image", "1.0", 1)
    (digest,) = image.digests()
    coming = peers.last_checkpoint(JOB)
    assert coming is not None
    coming.add_chunks(("pages", 0, digest))
    async with asyncio.timeout(20):
        await stream.began.wait()
    assert stream.sent == [["pages", 0, digest, store.packed(digest)]]
    assert not stream.over.is_set()
    assert peers.ticket(JOB) == ticket  # the one that goes to the submit side with it
    peers.offer_image(JOB, store, image)
    await giving
    assert stream.over.is_set()
    with pytest.raises(CallRefused):  # it lies there now, and on the submit side
        await give(peers, "1.0", ticket, [digest])
    await machine.settle()
    store.drop("1.0")
    assert store.used == 0
