"""A checkpoint server and the schedds that keep their images there: theirs alone, bounded, and found again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.images import ImageError, ImageStore, NoRoom
from pool.roles.images.remote import RemoteBlobStore, place_for
from pool.roles.images.server import ImageServer
from pool.roles.links import Links
from pool.testing.network import MemoryNetwork
from pool.wire import Dispatcher, RemoteError
from tests.images.test_store import contents, image


class Server:
    """A node "server" with a directory, and a network that leads to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.quota = 0
        self.network = MemoryNetwork(random.Random(3), delay=(0.0, 0.0001))
        self.links: list[Links] = []

    async def open(self) -> None:
        dispatcher = Dispatcher()
        dispatcher.add("images", ImageServer(self.directory, lambda: self.quota))
        self.listening = await self.network.host("server", roles=["schedd"]).listen("mem://server", dispatcher)

    def linked(self, node: str, *roles: str) -> Links:
        links = Links(self.network.host(node, roles=roles or ["schedd"]), Dispatcher())
        self.links.append(links)
        return links

    async def store(self, node: str = "head", **more: Any) -> ImageStore:
        links, loop = self.linked(node), asyncio.get_running_loop()
        place = await asyncio.to_thread(place_for, "mem://server", node, links, loop)
        return await asyncio.to_thread(lambda: ImageStore(place, **more))

    async def close(self) -> None:
        for links in self.links:
            await links.close()
        await self.listening.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path / "kept")
    await server.open()
    yield server
    await server.close()


async def keep(store: ImageStore, directory: Path, job: str, seed: int) -> Any:
    image(directory, seed)
    return await asyncio.to_thread(store.store_image, job, directory, 1.0)


async def test_an_image_is_kept_there_and_found_again(server: Server, tmp_path: Path) -> None:
    store = await server.store()
    kept = await keep(store, tmp_path / "image", "1.0", 1)
    again = await server.store()
    assert again.manifest("1.0") == kept
    await asyncio.to_thread(again.restore, kept, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "image")
    await asyncio.to_thread(again.drop, "1.0")
    assert not [path for path in server.directory.rglob("*") if path.is_file() and path.parent.name != "spare"]


async def test_what_one_node_keeps_is_not_there_for_another(server: Server, tmp_path: Path) -> None:
    mine = await server.store("head")
    await keep(mine, tmp_path / "image", "1.0", 1)
    other = await server.store("other")
    assert (other.jobs(), other.used) == ([], 0)
    place = RemoteBlobStore(server.linked("third"), "mem://server", asyncio.get_running_loop())
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(place.read, f"chunks/{'ab' * 20}"[:9] + "/" + "ab" * 19)


@pytest.mark.parametrize("name", ["../x", "chunks/ab/../../x", "jobs/../000000001.manifest", "jobs/1.0/x", "", "/etc"])
async def test_no_name_leads_out_of_the_directory(server: Server, name: str) -> None:
    link = await server.linked("head").connect("mem://server")
    with pytest.raises(RemoteError, match="no name of a part"):
        await link.call("images.remove", {"name": name, "last": True})
    with pytest.raises(RemoteError, match="no name of a part"):
        await link.call("images.sync", {"names": [name]})


async def test_a_machine_that_only_executes_may_not_write_there(server: Server) -> None:
    link = await server.linked("worker", "startd").connect("mem://server")
    with pytest.raises(RemoteError, match="may not"):
        await link.call("images.sync", {"names": []})


async def test_its_bound_holds_for_all(server: Server, tmp_path: Path) -> None:
    one, two = await server.store("one"), await server.store("two")
    await keep(one, tmp_path / "first", "1.0", 1)
    server.quota = one.used + 100_000
    with pytest.raises(NoRoom):
        await keep(two, tmp_path / "second", "1.0", 2)
    assert one.generations("1.0") == [1]
    assert two.jobs() == []
    server.quota *= 3
    await keep(two, tmp_path / "third", "1.0", 3)


async def test_a_server_that_is_away_is_an_error_in_one_line(server: Server, tmp_path: Path) -> None:
    store = await server.store()
    await keep(store, tmp_path / "image", "1.0", 1)
    server.network.partition({"head"}, {"server"})
    with pytest.raises(ImageError, match="the checkpoint server mem://server: "):
        await keep(store, tmp_path / "other", "1.0", 2)
    assert store.generations("1.0") == [1]
    with pytest.raises(ImageError, match="cannot open mem://server: "):
        await server.store()


async def test_the_loops_own_thread_never_waits_for_it(server: Server) -> None:
    place = RemoteBlobStore(server.linked("head"), "mem://server", asyncio.get_running_loop())
    with pytest.raises(OSError, match="own thread"):
        place.read("chunks/ab/cd")
