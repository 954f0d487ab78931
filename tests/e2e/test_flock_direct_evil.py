"""A pool that lies about direct connections, with the real wire and the keys of its agreement (`evil_pool`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.network.direct_link import dial, speak
from pool.network.stream_link import SEED, LinkKeys
from pool.wire import Connection, Dispatcher
from pool.wire.join import strangers_network
from tests.e2e import support
from tests.e2e.evil_pool import EvilPool, Wire, evil_pool
from tests.e2e.flocks import BOTH
from tests.e2e.support import Nodes, client, until
from tests.e2e.test_flock_evil import PARTS, _renew, own_job_runs

pytestmark = pytest.mark.own_pool("the evil pool is a node of the test's own process")
#: With these machines may connect directly, one for each test; not with the last one.
*AGREED, NOT_AGREED = ("evil-one", "evil-two", "evil-three", "evil-four")


@pytest.fixture(scope="module")
def honest(whose_pool: object) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        file = nodes.place / "flock.toml"
        file.write_text("".join(f'[{name}]\ndirect = ["127.0.0.1/32", "0.0.0.0/0"]\n' for name in AGREED))
        nodes.start("chem", BOTH, SLOTS="2", FILESYSTEM_DOMAIN="chem", CLAIM_LEASE="4", FLOCK_FILE=str(file)).ready()

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(honest: Nodes, request: pytest.FixtureRequest) -> Path:
    return honest.directory(support.directory_name(request))


class SharedJob:
    """A job with a part at chem, and one at the evil pool's machine, which says that it runs.

    Attributes:
        order: the evil part's. gang: the job's secret, which the parts know.
    """

    def __init__(self, evil: EvilPool, order: Wire) -> None:
        self.evil, self.order = evil, order
        self.gang = str(order["params"]["start"]["gang"])

    async def ask(self, **more: Any) -> Any:
        """The evil machine asks for the address of the part at chem."""
        return await self.evil.say(self.order, "direct_to_part", **{"run": 1, "parts": [0], "key": bytes(32), **more})

    async def offer(self) -> tuple[Wire, bytes]:
        """An offer of chem's machine, and the keys of the connection."""
        own = LinkKeys(os.urandom(SEED))
        said = await self.ask(key=own.public)
        return said, own.agree(said["key"], self.gang, dialed=True)

    async def connect(self) -> Connection:
        """A direct connection to the part at chem."""
        said, keys = await self.offer()
        peer = await dial(strangers_network(), said["address"], "startd", said["ticket"], keys)
        return await speak(peer, keys, Dispatcher(), dialed=True, name="chem")


@contextlib.asynccontextmanager
async def job_with(honest: Nodes, home: Path, name: str, answer: Any = None) -> AsyncIterator[SharedJob]:
    """Such a job; the evil startd's answer to the offer that it is asked for."""
    chem = honest.all[0]
    async with evil_pool(chem, name) as evil, client(chem) as pool:
        await evil.lend_one()
        link_key = LinkKeys(os.urandom(SEED)).public

        async def pass_call(call: Any, params: Wire) -> Any:
            if params["verb"] == "activate":
                evil.orders.put_nowait(params)
            if params["verb"] == "direct_from_part":
                return await answer(params)
            return {}

        async def carries(call: Any, params: Wire, stream: Any) -> None:
            await stream.send(link_key)  # a link whose packets nobody reads
            async for _ in stream:
                pass

        evil.answer("world.pass_call", pass_call)
        evil.answer("world.pass_stream", carries)
        cluster = await pool.submit(PARTS.format(pool=evil.name), iwd=str(home))
        async with asyncio.timeout(support.PATIENCE):
            order = await evil.orders.get()
        await evil.say(order, "wait_for_parts", run=1, card={"network": "private", "node": "den", "address": "x"})
        renewing = asyncio.create_task(_renew(evil, order))
        try:
            await evil.say(order, "report", run=1, kind="started", data={"started": 1.0})
            await until(lambda: (home / "out.0").exists() and (home / "out.0").read_text() == "rank0\n", "its own part")
            yield SharedJob(evil, order)
            await own_job_runs(pool, home)
            (ad,) = await cluster.ads()
            assert ad.value("JobStatus") == 2
        finally:
            renewing.cancel()
            await cluster.remove()


async def test_without_consent_no_address_is_told(honest: Nodes, home: Path) -> None:
    async with job_with(honest, home, NOT_AGREED) as job:
        assert await job.ask() == "NotDirect"


async def test_an_offer_is_good_for_its_part_and_once(honest: Nodes, home: Path) -> None:
    """The evil machine has a part of the job, and so a connection to the other one: nothing more comes of it."""
    chem = honest.all[0]
    async with job_with(honest, home, AGREED[0]) as job:
        for wrong in ({"key": bytes(32)}, {"key": b"short"}, {"parts": [7]}, {"parts": [1]}, {"run": 2}):
            assert isinstance(await job.ask(**wrong), str), wrong
        said, keys = await job.offer()
        assert said.keys() == {"address", "ticket", "key"}
        (await dial(strangers_network(), said["address"], "startd", said["ticket"], keys)).close()
        with pytest.raises((PoolError, OSError)):  # a replay
            await dial(strangers_network(), said["address"], "startd", said["ticket"], keys)
        link = await job.connect()
        for stream in (0, 1, -1, 2**40):
            with pytest.raises(PoolError, match="no such pipe"):
                await link.call("direct.connect", {"stream": stream})
            with pytest.raises(PoolError, match="no such pipe"):
                async with await link.stream("direct.pipe", {"stream": stream}) as pipe:
                    await pipe.receive()
        for verb in ("startd.claim", "schedd.query", "node.info", "world.status", "collector.query", "direct.nosuch"):
            with pytest.raises(PoolError):
                await link.call(verb, {})
        asked = [link.call("direct.connect", {"stream": None}) for _ in range(1000)]
        offers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, dict) for one in offers) < 100
        assert all("waited for already" in str(one) for one in offers if not isinstance(one, dict))
        assert "Traceback" not in chem.text
        await link.close()


async def test_an_address_of_a_third_party_is_not_connected_to(honest: Nodes, home: Path) -> None:
    """The evil machine names what it likes; the agreement names everything, and still not these."""
    trap = socket.create_server(("127.0.0.2", 0))
    trap.setblocking(False)
    asked: list[str] = []
    own = LinkKeys(os.urandom(SEED))

    async def lies(params: Wire) -> Wire:
        address = f"tcp://127.0.0.2:{trap.getsockname()[1]}"
        asked.append(address)
        return {"address": address, "ticket": "t", "key": own.public}

    with trap:
        async with job_with(honest, home, AGREED[1], lies):
            line = await asyncio.to_thread(
                honest.all[0].said, "a link to another pool stays with the worlds", error="each machine itself"
            )
            assert line["to"] == f"den@{AGREED[1]}"
            assert asked
            with pytest.raises(BlockingIOError):
                trap.accept()


async def test_an_impostor_at_a_good_address_gets_nothing(honest: Nodes, home: Path) -> None:
    """It leads our machine to a service of its own: that hears a handshake, and the link stays where it was."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    own = LinkKeys(os.urandom(SEED))

    async def leads(params: Wire) -> Wire:
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return {"address": address, "ticket": "a ticket", "key": own.public}

    async with job_with(honest, home, AGREED[2], leads):
        await until(lambda: bool(heard), "our machine to connect")
        await asyncio.to_thread(
            honest.all[0].said,
            "a link to another pool stays with the worlds",
            error="cannot connect to tcp://127.0.0.1",
        )
        assert heard[0][0] == 0x16
        assert b"a ticket" not in heard[0]
    server.close()
