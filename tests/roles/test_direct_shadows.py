"""The direct way between a machine of another pool and a job's schedd: for one claim, and back to the worlds."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.errors import PoolError
from pool.network.direct_link import dial
from pool.network.sealed_link import KEYS
from pool.outside import OutsideWorld
from pool.policy.flock.shown import GUEST_OF
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.placement.direct_claims import STREAMS, DirectMethods
from pool.roles.schedd.placement.methods import StartdMethods
from pool.roles.startd.running.direct_shadows import DirectShadows
from pool.roles.world.relay import SCHEDD_STREAMS
from pool.wire import Call, Dispatcher, RealNetwork, Service, Stream, own_identity, streaming
from pool.wire.authority import Authority
from pool.wire.credentials import Credentials
from pool.wire.errors import CallRefused
from pool.wire.identity import Right, node_identity
from pool.wire.join import strangers_network
from pool.wire.local import LocalConnection
from tests.starter.support import until

WORLD = node_identity("gate", ["world"])


class Methods(StartdMethods):
    """A schedd's methods, which say what came: (the caller, the parameters)."""

    def __init__(self) -> None:
        self.came: list[tuple[Any, dict[str, Any]]] = []

    def check_claim(self, claim: str, node: str) -> None:
        if node != WORLD.node:
            raise CallRefused("it is another node's claim")

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int})
    async def remote_io(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        self.came.append((call.identity, params))
        async for item in stream:
            await stream.send(item)


class Sides:
    """A schedd with one claim in another pool, and that pool's machine.

    Attributes:
        way: the last stream's: "direct" or "worlds".
    """

    def __init__(self, tasks: set[asyncio.Task[Any]]) -> None:
        self.methods = Methods()
        self.tasks = tasks
        self.held = cast(HeldClaim, SimpleNamespace(id="chem|startd|secret", slot="slot1@lab@chem@gate", over=False))
        self.claims = {self.held.id: self.held}
        self.asked = 0
        outside = SimpleNamespace(secret=secrets.token_hex)
        context = SimpleNamespace(claims=self.claims, outside=outside, log=logging.getLogger("test"))
        self.parted: list[str] = []

        async def end_direct(pool: str, node: str) -> None:
            self.parted.append(pool)

        between = cast(Any, SimpleNamespace(end_direct=end_direct))
        self.address = ""
        self.direct = DirectMethods(cast(Any, context), self.methods, between, lambda: self.address, self.spawn)
        self.claim = cast(
            Any,
            SimpleNamespace(
                id="secret", ad_wire={GUEST_OF: "home"}, owner="ann@home", node="gate", schedd=self._worlds()
            ),
        )
        self.here = {self.claim.id: object()}
        log = logging.getLogger("test")
        self.shadows = DirectShadows(self.here, strangers_network, secrets.token_hex, self.spawn, log)

    def spawn(self, work: Any, name: str, *, alone: bool = False) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    def _worlds(self) -> Any:
        """The way by the worlds, which put the schedd's own name for the claim in."""
        dispatcher = Dispatcher()
        dispatcher.add("schedd", self.methods)
        dispatcher.add("schedd", self.direct)
        link = LocalConnection(dispatcher, WORLD)

        async def call(verb: str, params: dict[str, Any], timeout: float) -> Any:
            self.asked += 1
            return await link.call(verb, {**params, "claim": self.held.id}, timeout)

        async def stream(verb: str, params: dict[str, Any]) -> Stream:
            return await link.stream(verb, {**params, "claim": self.held.id})

        return SimpleNamespace(call=call, stream=stream)

    async def way(self, claim: str = "secret") -> str:
        """Open a stream, have some bytes come back, and say which way they went."""
        async with await self.shadows.stream(self.claim, "remote_io", {"claim": claim, "run": 1}) as stream:
            await stream.send(b"bytes")
            assert await stream.receive() == b"bytes"
        identity, params = self.methods.came[-1]
        assert params["claim"] == self.held.id
        assert identity.node == WORLD.node
        return "worlds" if identity is WORLD else "direct"


@pytest.fixture
async def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sides]:
    monkeypatch.setattr("pool.roles.startd.running.direct_shadows.WAIT", 30.0)  # however busy the machine is
    tasks: set[asyncio.Task[Any]] = set()
    made = Sides(tasks)
    authority = Authority.open(tmp_path / "authority", "home", OutsideWorld(wall=time.time, chance=random.Random(1)))
    dispatcher = Dispatcher()
    dispatcher.add("schedd", cast(Service, made.direct))
    credentials = Credentials.create(tmp_path / "node", authority, "node", ["schedd"])
    server = await RealNetwork(dispatcher, own_identity("node"), credentials).listen("tcp://127.0.0.1:0", dispatcher)
    made.address = server.address
    yield made
    made.shadows.end(made.claim)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.close()


async def test_streams_go_directly_and_one_connection_serves_a_claim(sides: Sides) -> None:
    assert [await sides.way() for _ in range(3)] == ["direct"] * 3
    assert sides.asked == 1
    assert sides.shadows.is_direct(sides.claim)


async def test_whatever_claim_it_names_its_own_is_meant(sides: Sides) -> None:
    assert await sides.way(claim="chem|startd|another") == "direct"


async def test_only_the_streams_of_the_table_can_be_opened(sides: Sides) -> None:
    assert await sides.way() == "direct"
    link = cast(Any, sides.shadows)._links["secret"]
    for verb in ("renew", "ended", "report", "direct_to_schedd", "end_direct", "check_claim", "carry_link", "query"):
        with pytest.raises(PoolError):
            await link.call(f"schedd.{verb}", {"claim": "secret", "run": 1, "key": bytes(32), "pool": "chem"})
    assert set(STREAMS) == set(SCHEDD_STREAMS)


async def test_a_job_of_the_own_pool_has_no_such_connection(sides: Sides) -> None:
    sides.claim.ad_wire = {}
    assert await sides.way() == "worlds"
    assert not sides.asked


async def test_a_schedd_that_is_not_reached_costs_one_try_a_minute(sides: Sides) -> None:
    """No node is there: streams go by the worlds at once, also those of other claims of that pool."""
    sides.address = "tcp://127.0.0.1:1"
    assert [await sides.way() for _ in range(3)] == ["worlds"] * 3
    assert sides.asked == 1


async def test_a_schedd_that_does_not_answer_is_not_waited_for(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.roles.startd.running.direct_shadows.WAIT", 0.05)
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(1000), "127.0.0.1", 0)
    sides.address = f"tcp://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(3.0):  # less than it takes until the try is given up
        assert [await sides.way() for _ in range(3)] == ["worlds"] * 3
    silent.close()


Ends = Callable[[Sides], Any]


async def _withdrawn_at_home(sides: Sides) -> None:
    await sides.direct.end_direct(Call(WORLD, cast(Any, None)), {"pool": "chem"})
    assert sides.parted == ["chem"]


async def _withdrawn_by_the_lender(sides: Sides) -> None:
    sides.shadows.end(sides.claim)


async def _broken(sides: Sides) -> None:
    (link,) = cast(Any, sides.direct)._open
    link.drop()


@pytest.mark.parametrize("ends", [_withdrawn_at_home, _withdrawn_by_the_lender, _broken])
async def test_a_stream_ends_with_the_connection_and_the_next_one_finds_a_way(sides: Sides, ends: Ends) -> None:
    assert await sides.way() == "direct"
    async with await sides.shadows.stream(sides.claim, "remote_io", {"claim": "secret", "run": 1}) as stream:
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        await ends(sides)
        with pytest.raises(PoolError):
            await stream.receive()
    sides.address = "tcp://127.0.0.1:1"
    assert await sides.way() == "worlds"


async def test_another_pool_and_another_world_end_nothing_here(sides: Sides) -> None:
    assert await sides.way() == "direct"
    await sides.direct.end_direct(Call(WORLD, cast(Any, None)), {"pool": "bio"})
    await sides.direct.end_direct(Call(node_identity("other", ["world"]), cast(Any, None)), {"pool": "chem"})
    assert await sides.way() == "direct"
    assert sides.asked == 1


@pytest.mark.parametrize("side", ["schedd", "startd"])
async def test_a_connection_ends_with_its_claim(sides: Sides, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    monkeypatch.setattr("pool.roles.startd.running.direct_shadows.CHECK", 0.02)
    monkeypatch.setattr("pool.roles.schedd.placement.direct_claims.CHECK", 0.02)
    assert await sides.way() == "direct"
    (sides.claims if side == "schedd" else sides.here).clear()
    await until(lambda: not sides.shadows.is_direct(sides.claim) and not cast(Any, sides.direct)._open)


async def test_a_claim_that_is_over_opens_no_stream(sides: Sides) -> None:
    """Before anybody has noticed that its connection is of no use."""
    assert await sides.way() == "direct"
    cast(Any, sides.held).over = True
    async with await sides.shadows.stream(sides.claim, "remote_io", {"claim": "secret", "run": 1}) as stream:
        with pytest.raises(PoolError, match="claim is over"):
            await stream.receive()


async def test_an_offer_is_for_machines_of_other_pools_and_once(sides: Sides) -> None:
    key = secrets.token_bytes(32)
    link = LocalConnection(Dispatcher(), WORLD)
    for node, claim in (("other", sides.held.id), (WORLD.node, "nosuch")):
        asked = {"claim": claim, "key": key}
        with pytest.raises(PoolError):
            await sides.direct.direct_to_schedd(Call(node_identity(node, ["world"]), link), asked)
    cast(Any, sides.held).slot = "slot1@lab"
    with pytest.raises(PoolError, match="of another pool"):
        await sides.direct.direct_to_schedd(Call(WORLD, link), {"claim": sides.held.id, "key": key})
    cast(Any, sides.held).slot = "slot1@lab@chem@gate"
    said = await sides.direct.direct_to_schedd(Call(WORLD, link), {"claim": sides.held.id, "key": key})
    with pytest.raises((PoolError, OSError, TimeoutError)):  # without its keys
        await dial(strangers_network(), said["address"], "schedd", said["ticket"], bytes(KEYS))
