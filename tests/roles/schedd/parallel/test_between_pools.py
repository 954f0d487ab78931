"""The schedd between parts of a job in different pools: who may ask for what, and what is left of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.errors import PoolError
from pool.pipes.protocol import GONE
from pool.roles.schedd.parallel.between_pools import BetweenPools
from pool.wire import Call, Connection, Dispatcher, Service, Stream, method, streaming
from pool.wire.errors import CallRefused
from pool.wire.identity import Identity
from pool.wire.local import LocalConnection
from tests.starter.support import until

SLOTS = ("slot1@one", "slot1@lab@chem@one", "slot2@lab@chem@one", "slot1@den@bio@one", "slot2@one")


class Machines(Service):
    """All startds of a job: what they were asked, and an echo."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.open = 0

    @streaming(None, takes={})
    async def link_from_part(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await self._echo("link", params, stream)

    @streaming(None, takes={})
    async def pipe_from_part(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await self._echo("pipe", params, stream)

    @method(None, takes={})
    async def direct_from_part(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(("direct", params))
        return {"address": "tcp://192.0.2.1:9618", "ticket": "t", "key": b"its key"}

    @method(None, takes={})
    async def end_direct(self, call: Call, params: dict[str, Any]) -> None:
        self.asked.append(("end", params))
        if params["claim"] == "1":
            raise CallRefused("it does not answer")

    async def _echo(self, what: str, params: dict[str, Any], stream: Stream) -> None:
        self.asked.append((what, params))
        self.open += 1
        try:
            async for item in stream:
                await stream.send(item)
        finally:
            self.open -= 1


class Asking(Service):
    """A schedd as its parts see it."""

    def __init__(self, between: BetweenPools) -> None:
        self._between = between

    @streaming(None, takes={})
    async def link(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await self._between.link(params["claim"], params["run"], params["parts"], b"key", stream)

    @streaming(None, takes={})
    async def pipe(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await self._between.pipe(params["claim"], params["run"], params["part"], params["stream"], stream)


def connection(name: str, service: Service) -> Connection:
    dispatcher = Dispatcher()
    dispatcher.add(name, service)
    return LocalConnection(dispatcher, Identity("node", "one", "one"))


class Gang(SimpleNamespace):
    """A job's parts; like a real one it is equal to itself alone."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Job:
    """A job with a part on each of `SLOTS`, whose first has pipe 7 to the second. Claims are numbered as parts are."""

    def __init__(self) -> None:
        self.machines = Machines()
        self.met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.met.set_result(None)
        self.gang = Gang(secret="secret", root=None, met=self.met, claims={})
        self.claims = {}
        for part, slot in enumerate(SLOTS):
            start = SimpleNamespace(crossings=((0, 7, 1),) if part == 0 else ())
            claim = SimpleNamespace(
                id=str(part), slot=slot, startd="all", gang=self.gang, run=1, part=part, start=start
            )
            self.claims[claim.id] = self.gang.claims[part] = claim
        startds = connection("startd", self.machines)

        async def connect(address: str) -> Connection:
            return startds

        context = SimpleNamespace(claims=self.claims, links=SimpleNamespace(connect=connect))
        self.between = BetweenPools(cast(Any, context), lambda claim: cast(Any, claim.start))
        self.schedd = connection("schedd", Asking(self.between))

    async def link(self, claim: str, *parts: int, run: int = 1) -> Stream:
        return await self.schedd.stream("schedd.link", {"claim": claim, "run": run, "parts": list(parts)})

    async def pipe(self, claim: str, part: int, number: int) -> Stream:
        return await self.schedd.stream("schedd.pipe", {"claim": claim, "run": 1, "part": part, "stream": number})


@pytest.fixture
async def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("pool.policy.third_node.PAUSE", 0.0)
    return Job()


@pytest.mark.parametrize(("claim", "part"), [("0", 1), ("1", 0), ("1", 3), ("3", 4)])
async def test_items_pass_both_ways_until_the_asker_ends(job: Job, claim: str, part: int) -> None:
    async with await job.link(claim, part) as stream:
        for item in (b"one", b"two"):
            await stream.send(item)
            assert await stream.receive() == item
        assert job.machines.asked == [("link", {"claim": str(part), "run": 1, "part": int(claim), "key": b"key"})]
    await until(lambda: not (job.machines.open or job.between._linked or job.between._links._all))


async def test_a_new_link_takes_the_place_of_the_earlier_one(job: Job) -> None:
    async with await job.link("0", 1) as first, await job.link("2", 0) as second:
        await second.send(b"x")
        assert await second.receive() == b"x"
        with pytest.raises((EOFError, PoolError)):
            await first.receive()
        assert job.machines.open == 1
        assert len(job.between._linked) == 1


async def test_a_part_beside_one_that_has_ended_is_asked(job: Job) -> None:
    del job.gang.claims[1]
    async with await job.link("0", 1, 2) as stream:
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        assert [params["claim"] for _, params in job.machines.asked] == ["2"]


@pytest.mark.parametrize(
    "asked", [("9", 1), ("0",), ("0", 9), ("0", 4), ("1", 2), ("0", 0), ("0", -1), ("1", 1)], ids=str
)
async def test_nobody_else_is_asked(job: Job, asked: tuple[Any, ...]) -> None:
    """Claims and parts that there are not, and machines of one pool, which connect by themselves."""
    async with await job.link(*asked) as stream:
        with pytest.raises(PoolError):
            await stream.receive()
    assert not job.machines.asked
    assert not job.between._links._all


async def test_a_job_that_ends_and_another_run_get_no_link(job: Job) -> None:
    async with await job.link("0", 1, run=2) as stream:
        with pytest.raises(PoolError, match="no such job runs"):
            await stream.receive()
    job.gang.root = 1
    async with await job.link("0", 1) as stream:
        with pytest.raises(PoolError, match="no such job runs"):
            await stream.receive()


async def test_links_that_are_asked_for_without_end_are_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.policy.third_node.PAUSE", 1000.0)
    refused = 0
    for _ in range(50):
        async with await job.link("1", 0) as stream:
            await stream.finish()
            try:
                await stream.receive()
            except CallRefused:
                refused += 1
            except EOFError:
                pass
            except PoolError:
                refused += 1
    assert (refused, len(job.machines.asked)) == (49, 1)


async def test_a_pipe_of_the_job_is_carried_and_no_other(job: Job) -> None:
    async with await job.pipe("0", 1, 7) as stream:
        await stream.send(b"bytes")
        assert await stream.receive() == b"bytes"
        wanted = {"claim": "1", "gang": "secret", "run": 1, "stream": 7}
        assert job.machines.asked == [("pipe", wanted)]
        for wrong in (("0", 1, 8), ("0", 2, 7), ("1", 0, 7), ("3", 1, 7)):
            async with await job.pipe(*wrong) as other:
                with pytest.raises(PoolError, match="no such pipe"):
                    await other.receive()
    await until(lambda: not (job.machines.open or job.between._piped))


async def test_who_writes_to_a_part_that_has_ended_hears_that_nobody_reads(job: Job) -> None:
    del job.gang.claims[1]
    async with await job.pipe("0", 1, 7) as stream:
        assert await stream.receive() == GONE


async def test_an_offer_comes_from_the_other_parts_machine(job: Job) -> None:
    offer = await job.between.direct("0", 1, [7, 1, 2], b"key")
    assert offer == {"address": "tcp://192.0.2.1:9618", "ticket": "t", "key": b"its key"}
    assert job.machines.asked == [("direct", {"claim": "1", "run": 1, "part": 0, "key": b"key"})]


@pytest.mark.parametrize(
    "asked", [("9", 1, [1]), ("0", 2, [1]), ("0", 1, []), ("0", 1, [9]), ("0", 1, [4]), ("1", 1, [2])], ids=str
)
async def test_nobody_else_offers_anything(job: Job, asked: tuple[str, int, list[int]]) -> None:
    """Claims, runs and parts that there are not, and machines of one pool."""
    with pytest.raises(CallRefused):
        await job.between.direct(*asked, b"key")
    job.gang.root = 1
    with pytest.raises(CallRefused, match="no such job runs"):
        await job.between.direct("0", 1, [1], b"key")
    assert not job.machines.asked


async def test_a_pool_that_leaves_ends_direct_connections_of_all_parts(job: Job) -> None:
    """The world that says so is the one by which its machines came; one machine that does not answer stops no other."""
    await job.between.end_direct("chem", "two")
    await job.between.end_direct("math", "one")
    assert not job.machines.asked
    await job.between.end_direct("chem", "one")
    assert sorted(params["claim"] for _, params in job.machines.asked) == ["0", "1", "2", "3", "4"]
