"""A pool of the flock that is evil: at the border of the wire it gets what the agreement gives, and no more (EV 8).

The other pool has a good certificate. It lies about machines, users and messages, asks for the files of others, claims
what it was not given, and says things twice.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pool.errors import PoolError
from pool.roles.startd.running.activations import Activations
from pool.roles.world.guest_requests import MOST_USERS
from pool.roles.world.offers import Borrower
from pool.roles.world.relay import NoWay, claims_of
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.wire import Connection, RemoteError, Right
from pool.wire.identity import PEER_POOL, node_identity
from tests.roles.support import QUICK, lasting

#: The methods that another pool's world may call here; and on the connection that we have made to it.
FOR_POOLS = {"offers", "claim", "pass_call", "pass_stream", "listing", "ping", "part", "refer", "renew"}
COMES_BACK = {"pass_back", "credit", "cut", "stream_back"}
#: The methods that strangers may call of any node: before they have joined, or with the ticket of a direct connection.
FOR_STRANGERS = {"node.authority", "node.join", "schedd.direct", "startd.direct"}


def methods_of(flock: SimFlock, name: str) -> Any:
    dispatcher: Any = flock.pool(name).nodes[head(name)].dispatcher
    return dispatcher._methods


@asynccontextmanager
async def two_pools(seed: int, *, seconds: float = 50.0, own: int = 0) -> AsyncIterator[SimFlock]:
    """Physics borrows the two machines of chem. Nothing that follows may fail a role or log a defect."""
    defects = _Defects()
    logging.getLogger("pool").addHandler(defects)
    try:
        async with SimFlock(["physics", "chem"], seed, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 2, behave=lambda spec: lasting(seconds))
            await flock.add_pool("physics", own, behave=lambda spec: lasting(seconds))
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 2 + own, within=60)
            yield flock
            flock.assert_sound()
    finally:
        logging.getLogger("pool").removeHandler(defects)
    assert defects.seen == []


class _Defects(logging.Handler):
    """Keeps what is logged with a trace."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.seen.append(f"{record.getMessage()} {getattr(record, 'method', '')}: {record.exc_info[1]!r}")


async def as_physics(flock: SimFlock) -> Connection:
    """A connection to chem's head with the certificate that chem gave physics."""
    identity = node_identity("physics", [PEER_POOL])
    return await flock.network.host(head("physics"), identity=identity).connect(f"mem://{head('chem')}")


def test_a_pool_reaches_the_methods_of_one_table() -> None:
    async def work() -> None:
        async with two_pools(1) as flock:
            methods = methods_of(flock, "chem")
            reached = {name for name, entry in methods.items() if entry.declared.right is Right.FLOCK}
            assert reached == {f"world.{verb}" for verb in FOR_POOLS}
            open_to_all = {name for name, entry in methods.items() if entry.declared.right is None}
            assert open_to_all <= FOR_STRANGERS
            ((_, link),) = ((pool, link) for pool, (link, _) in _world(flock, "physics")._lenders.items())
            assert set(link._dispatcher._methods) == {f"world_back.{verb}" for verb in COMES_BACK}
            wire = await as_physics(flock)
            for name in methods.keys() - reached - open_to_all:
                with pytest.raises(RemoteError, match="may not call"):
                    await wire.call(name, {})

    run_virtual(work())


def _world(flock: SimFlock, name: str) -> Any:
    return flock.pool(name).role(head(name), "world")


REQUEST: dict[str, Any] = {
    "schedd": "physics-head", "owner": "mallory", "lease": 60.0, "count": 1,
    "ad": {"Requirements": ["true"], "JobUniverse": 5, "Cmd": "/bin/true"},
}  # fmt: skip


SENSELESS: tuple[dict[str, Any], ...] = (
    {"owner": ""}, {"owner": "a b"}, {"owner": "x" * 300}, {"owner": "a\x00"}, {"owner": "a|b"}, {"owner": "a~b"},
    {"lease": float("nan")}, {"lease": float("inf")}, {"lease": -5}, {"lease": 0},
    {"ad": {"Requirements": ["true)"]}}, {"ad": {"Requirements": ["(" * 5000]}},
)  # fmt: skip


def test_requests_that_make_no_sense_are_refused_in_words() -> None:
    async def work() -> None:
        async with two_pools(2) as flock:
            link = await as_physics(flock)
            for change in SENSELESS:
                with pytest.raises(RemoteError) as caught:
                    await link.call("world.claim", {**REQUEST, **change}, timeout=60)
                assert caught.value.kind != "InternalError", change
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)

    run_virtual(work())


def test_a_borrower_that_lies_about_its_users_is_still_a_guest() -> None:
    """It says that its job is bob's, of chem, in his group, and of the dedicated scheduler."""

    async def work() -> None:
        async with two_pools(3) as flock:
            link = await as_physics(flock)
            ad = {
                **REQUEST["ad"],
                **{"Owner": "bob", "USER": "bob@vm", "NiceUser": False, "niceuser": False, "AcctGroup": "bosses"},
                **{"FlockGuestOf": "chem", "flockguestof": "chem", "Scheduler": "DedicatedScheduler@chem-head"},
            }
            (made,) = (await link.call("world.claim", {**REQUEST, "owner": "bob", "ad": ad}))["claims"]
            await flock.settle(1)
            shown = flock.pool("chem").role(head("chem"), "collector")._registry.entries["Machine", made["slot"]].ad
            assert shown["RemoteOwner"] == "bob@physics"
            (slot,) = [
                slot
                for name in ("chem-m0", "chem-m1")
                for slot in flock.pool("chem").role(name, "startd").slots.values()
                if slot.claim is not None
            ]
            said = {name.lower(): value for name, value in slot.claim.ad_wire.items()}
            assert (said["owner"], said["flockguestof"], said["niceuser"]) == ("bob@physics", "physics", True)
            assert "acctgroup" not in said
            assert "scheduler" not in said
            way = {"schedd": "physics-head", "startd": made["startd"]}
            for verb, params in (
                ("activate", {"claim": made["claim"], "base": None, "start": {"mode": "shared"}}),
                ("activate", {"claim": made["claim"], "base": None, "start": 7, "shared": 7, "own": 7}),
                ("activate", {"claim": [], "start": {}}),
                ("release", {"claims": 7}),
                ("release", {"claims": [{}]}),
                ("inspect", {"claim": "invented"}),
                ("deactivate", {}),
            ):
                with pytest.raises(RemoteError) as caught:
                    await link.call("world.pass_call", {**way, "verb": verb, "params": params})
                assert caught.value.kind != "InternalError", (verb, params)

    run_virtual(work())


def test_more_than_it_may_have_is_not_claimed() -> None:
    """A thousand slots in one request, and many requests at once: as many as there are, by its limit."""

    async def work() -> None:
        async with two_pools(4) as flock:
            link = await as_physics(flock)
            world = _world(flock, "chem")
            world._agreements = {"physics": replace(world._agreement("physics"), machines=1)}
            made = (await link.call("world.claim", {**REQUEST, "count": 10**9}))["claims"]
            assert len(made) == 1
            with pytest.raises(RemoteError, match="has its 1 slots here already"):
                await link.call("world.claim", REQUEST)

    run_virtual(work())


GOOD: dict[str, Any] = {"startd": "mem://chem-m0", "claim": "x", "slot": "slot1@chem-m0", "ad": {}}
CHANGES: tuple[dict[str, Any], ...] = (
    {"startd": "mem://physics-m0|1"}, {"slot": "slot1@physics-m0@x"}, {"slot": 7}, {"claim": None}, {"ad": []},
    {"ad": {7: 7}}, {"slot": "x" * 1000},
)  # fmt: skip
LIES: tuple[Any, ...] = (
    *(None, 7, {}, {"claims": None}, {"claims": []}, {"claims": 7}, {"claims": [7]}, {"claims": [{}]}),
    *({"claims": [GOOD | change]} for change in CHANGES),
)


def test_a_lender_that_answers_a_claim_with_garbage_gets_no_job() -> None:
    async def work() -> None:
        async with two_pools(5) as flock:
            methods, lies = methods_of(flock, "chem"), list(LIES)
            honest = methods["world.claim"]

            async def answer(call: Any, params: Any) -> Any:
                return lies.pop() if lies else await honest.function(call, params)

            methods["world.claim"] = replace(honest, function=answer)
            for user in ("alice", "bob", "carol", "dave"):  # each is asked for by itself, with pauses between
                await flock.submit("physics", owner=user)
            await flock.run_until(lambda: not lies, within=300)
            assert flock.now() > 3, "it is asked again after pauses"
            await flock.run_until(lambda: flock.queued("physics") == 0, within=400)

    run_virtual(work())


OFFERS: tuple[Any, ...] = (
    *(7, "x", [7], [["a"]], [["slot1", {}]], [["slot1@a@b", {}]], [["slot1@a", 7]], [["x" * 600 + "@a", {}]]),
    *([["slot1@a", {1: 2}]], [["slot1\n@a", {}]], [["slot1@a\x1b[2J", {}]], [["slot 1@a", {}]]),
)


def test_offers_that_cannot_be_read_end_that_link_and_cost_no_job() -> None:
    async def work() -> None:
        async with two_pools(6, own=1, seconds=5) as flock:
            methods, offers = methods_of(flock, "chem"), list(OFFERS)
            honest = methods["world.offers"]

            async def lie(call: Any, params: Any, stream: Any) -> None:
                if not offers:
                    await honest.function(call, params, stream)
                else:
                    await stream.send(offers.pop())
                    async for _ in stream:
                        pass

            methods["world.offers"] = replace(honest, function=lie)
            flock.network.cut(head("physics"), head("chem"))
            flock.network.restore_links()
            await flock.submit("physics", count=2)
            await flock.run_until(lambda: flock.queued("physics") == 0, within=100)
            assert flock.runs_by_machine() == {"physics-m0": 2}
            await flock.run_until(lambda: not offers and len(flock.machines_shown("physics")) == 3, within=600)

    run_virtual(work())


def test_machines_that_a_pool_invents_pass_for_none_of_ours() -> None:
    """It offers our own head, a huge rank, and a machine with our files; a job of ours that runs here stays."""

    async def work() -> None:
        async with two_pools(7, own=1) as flock:
            evil = {
                **{"Name": "slot1@physics-m0", "Machine": "physics-m0", "StartdAddress": "mem://physics-m0"},
                **{"State": "Unclaimed", "Rank": 1e30, "FileSystemDomain": "physics", "Requirements": ["true"]},
                **{"Memory": 10**9, "Cpus": 10**6, "ClaimId": "stolen", "DedicatedSchedulers": "x"},
            }
            link = _world(flock, "physics")._lenders["chem"][0]
            link._offered("slot1@physics-m0", evil)
            await flock.settle(2)
            entries = flock.pool("physics").role(head("physics"), "collector")._registry.entries
            own = entries["Machine", "slot1@physics-m0"].ad
            assert own["StartdAddress"] == "mem://physics-m0"
            lent = entries["Machine", "slot1@physics-m0@chem@physics-head"].ad
            assert (lent["FileSystemDomain"], lent["Rank"], lent["FlockPool"]) == ("flock.chem", 0.0, "chem")
            assert lent["Machine"] != "physics-m0"
            assert "DedicatedSchedulers" not in lent
            await flock.submit("physics", count=2)
            await flock.run_until(lambda: flock.queued("physics") == 0, within=400)

    run_virtual(work())


def test_no_job_is_handed_on_from_another_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a job's end carries an order for the job after it: it would pass by what a guest may do here."""
    sent: list[Any] = []
    taken: list[Any] = []
    hand_on = Activations.hand_on
    order = {"claim": "any", "start": {"mode": "shared", "owner": "root"}, "shared": {"Owner": "root"}, "own": {}}

    def takes(activations: Activations, slot: Any, claim: Any, order: dict[str, Any]) -> None:
        taken.append(order)
        hand_on(activations, slot, claim, order)

    monkeypatch.setattr(Activations, "hand_on", takes)

    async def work() -> None:
        async with two_pools(31) as flock:
            methods = methods_of(flock, "physics")
            honest = methods["schedd.ended"]

            async def lies(call: Any, params: dict[str, Any]) -> Any:
                answer = {**await honest.function(call, params), "handed_on": order, "keep": True}
                sent.append(answer)
                return answer

            methods["schedd.ended"] = replace(honest, function=lies)
            await flock.submit("physics", count=3)
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)
            assert len(sent) >= 3
            assert taken == []

    run_virtual(work())


#: Answers that tell nothing.
NOTHING: tuple[Any, ...] = (None, {}, {"next": None, "keep": False})


def test_a_lender_can_say_nothing_of_claims_that_are_not_its_own() -> None:
    """It names claims of our own machines, invented ones, other methods, and our users' files."""

    async def work() -> None:
        async with two_pools(8, own=1, seconds=300) as flock:
            await flock.submit("physics", ad={"WantFlock": False})
            await flock.run_until(lambda: flock.running("physics") == 1, within=30)
            await flock.submit("physics", ad={"Requirements": ['FlockPool =?= "chem"']})
            await flock.run_until(lambda: flock.running("physics") == 2, within=30)
            job, _ = flock.pool("physics").role(head("physics"), "schedd").queue.jobs()
            run = job.stored_note("_run")
            back = _world(flock, "chem")._borrower("physics")
            way = {"schedd": head("physics"), "startd": run["startd"]}
            report = {"claim": run["claim"], "job": list(job.id), "run": 1, "report": {"cause": "exit", "code": 0}}
            for verb, params in (
                ("ended", report), ("revoked", {"claim": run["claim"], "why": "x"}), ("report", report),
                ("ended", {}), ("revoked", {}), ("renew", {}), ("renew", {"claims": 7}), ("renew", {"claims": [{}]}),
                *((other, {}) for other in ("submit", "act", "query", "matched", "requests", "why", "no.such", "")),
            ):  # fmt: skip
                assert await _said(back, {**way, "verb": verb, "params": params}) in NOTHING, (verb, params)
            assert flock.running("physics") == 2
            told = {**way, "verb": "renew", "params": {"claims": [run["claim"]]}}
            assert await back.call("world_back.pass_back", told) == {"gone": [run["claim"]]}, "its own of that name"
            for verb in ("fetch_inputs", "store_outputs", "fetch_image", "store_image", "remote_io", "tail", "shell"):
                for claim in (run["claim"], "x", None, 7):
                    params = {**way, "verb": verb, "params": {"claim": claim, "job": list(job.id), "run": 1}}
                    with pytest.raises(PoolError):
                        await _items(await back.stream("world_back.stream_back", params))
            with pytest.raises(RemoteError, match="cannot be reached"):
                await back.call("world_back.pass_back", {**way, "schedd": "other", "verb": "renew", "params": {}})
            await flock.run_until(lambda: flock.queued("physics") == 0, within=400)
            ads = await flock.pool("physics").ended(head("physics"))
            assert [ad["NumJobStarts"] for ad in ads] == [1, 1]

    run_virtual(work())


async def _said(back: Connection, params: dict[str, Any]) -> Any:
    """The answer to a call of the other world's; None where it is refused in words."""
    try:
        return await back.call("world_back.pass_back", params)
    except RemoteError as error:
        return None if error.kind != "InternalError" else error


async def _items(stream: Any) -> list[Any]:
    return [item async for item in stream]


@pytest.mark.parametrize("verb", ["ended", "activate", "release"])
def test_a_message_that_is_said_twice_does_nothing_more(verb: str) -> None:
    """Each call of that name that passes between the pools comes a second time, right after and a minute later."""

    async def work() -> None:
        async with two_pools(9) as flock:
            again: list[Callable[[], Any]] = []
            for name, method in (("physics", "world_back.pass_back"), ("chem", "world.pass_call")):
                methods = (
                    _world(flock, name)._lenders["chem"][0]._dispatcher._methods
                    if method.startswith("world_back")
                    else methods_of(flock, name)
                )
                honest = methods[method]

                async def twice(call: Any, params: Any, honest: Any = honest) -> Any:
                    answer = await honest.function(call, params)
                    if params["verb"] == verb:
                        again.append(lambda: honest.function(call, params))
                        await _quietly(again[-1])
                    return answer

                methods[method] = replace(honest, function=twice)
            await flock.submit("physics", count=5)
            for _ in range(8):
                await flock.settle(60)
                for replay in list(again):
                    await _quietly(replay)
            await flock.run_until(lambda: flock.queued("physics") == 0, within=600)
            assert again
            ads = await flock.pool("physics").ended(head("physics"))
            assert [(ad["NumJobStarts"], ad["ExitCode"]) for ad in ads] == [(1, 0)] * 5

    run_virtual(work())


async def _quietly(call: Callable[[], Any]) -> None:
    try:
        await call()
    except PoolError:
        pass  # a replay may be refused


def test_a_pool_that_never_answers_is_asked_ever_less_often() -> None:
    """Requests for its machines hang, so a job that it holds up so is asked for elsewhere in between."""

    async def work() -> None:
        async with two_pools(10) as flock:
            methods, asked = methods_of(flock, "chem"), list[float]()
            honest = methods["world.claim"]

            async def hang(call: Any, params: Any) -> Any:
                asked.append(flock.now())
                await asyncio.sleep(1e9)

            methods["world.claim"] = replace(honest, function=hang)
            await flock.submit("physics")
            await flock.settle(600)
            assert 3 <= len(asked) <= 8, "each time for 25 s, and after that for a minute not"
            assert all(later - before > 80 for before, later in itertools.pairwise(asked[1:]))
            methods["world.claim"] = honest
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)

    run_virtual(work())


def test_a_pool_that_breaks_off_again_and_again_is_asked_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    """It offers something each time, and ends the connection at once."""

    async def work() -> None:
        async with two_pools(11) as flock:
            methods, asked = methods_of(flock, "chem"), list[float]()
            honest = methods["world.offers"]

            async def break_off(call: Any, params: Any, stream: Any) -> None:
                asked.append(flock.now())
                await stream.send([])

            methods["world.offers"] = replace(honest, function=break_off)
            flock.network.cut(head("physics"), head("chem"))
            flock.network.restore_links()
            await flock.settle(600)
            assert len(asked) <= 30
            methods["world.offers"] = honest
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)

    with caplog.at_level("INFO", "pool"):
        run_virtual(work())
    assert sum(record.getMessage() == "another pool is out of reach" for record in caplog.records) <= 12
    assert sum(record.getMessage() == "another pool is reached" for record in caplog.records) <= 35


def test_a_claim_that_an_answer_has_twice_is_none() -> None:
    assert claims_of({"claims": [GOOD, GOOD | {"claim": "y"}]}, 2) == [GOOD, GOOD | {"claim": "y"}]
    with pytest.raises(NoWay, match="one claim twice"):
        claims_of({"claims": [GOOD, GOOD]}, 2)


@pytest.mark.parametrize(
    "change",
    [
        *({"claim": "x" * 600}, {"claim": "a\nb"}, {"slot": "slot1@a\n005 (1.0.0) Job terminated"}),
        *({"slot": "slot1@\x1b[2J"}, {"startd": "mem://a\n"}, {"ad": {"Memory": "x" * 70_000}}),
        {"ad": {f"n{number}": "y" * 60 for number in range(1200)}},
    ],
)  # fmt: skip
def test_a_claim_that_is_too_large_or_has_no_plain_names_is_none(change: dict[str, Any]) -> None:
    """Its ad would stand in our collector, and its names in the logs of our users."""
    with pytest.raises(NoWay, match="no claims that can be read"):
        claims_of({"claims": [{**GOOD, **change}]}, 1)


def test_a_lender_that_knows_its_claim_again_with_a_huge_machine_fills_no_memory_of_ours() -> None:
    async def work() -> None:
        async with two_pools(12, seconds=300) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=60)
            methods = methods_of(flock, "chem")
            honest, told = methods["world.pass_call"], list[str]()

            async def swell(call: Any, params: Any) -> Any:
                answer = await honest.function(call, params)
                if params["verb"] == "resume":
                    told.append(params["verb"])
                    answer["ad"] |= {f"n{number}": "y" * 60 for number in range(10_000)}
                return answer

            methods["world.pass_call"] = replace(honest, function=swell)
            flock.network.cut(head("physics"), head("chem"))
            flock.network.restore_links()
            await flock.run_until(lambda: bool(told), within=100)
            methods["world.pass_call"] = honest
            await flock.run_until(lambda: flock.queued("physics") == 0, within=2000)

    run_virtual(work())


def test_a_borrower_of_many_users_takes_no_more_than_its_share_of_our_negotiator() -> None:
    """Each user whose jobs wait is a submitter of ours, and what is known of those that were is forgotten."""

    async def work() -> None:
        async with two_pools(13, seconds=10_000) as flock:
            lending = _world(flock, "chem").lending
            link = await as_physics(flock)

            async def ask(number: int) -> str:
                asked = {**REQUEST, "owner": f"user{number}", "ad": {**REQUEST["ad"], "RequestMemory": 10**9}}
                try:
                    await link.call("world.claim", asked, timeout=60)
                except RemoteError as error:
                    return error.message
                return ""

            asked = [asyncio.create_task(ask(number)) for number in range(MOST_USERS + 50)]
            await flock.run_until(lambda: sum(task.done() for task in asked) >= 50, within=5)
            assert len({request.owner for request in lending._requests.values()}) <= MOST_USERS
            said = await asyncio.gather(*asked)
            assert sum("users waiting here" in why for why in said) == 50
            assert lending._demand._grown == {}
            assert await ask(0) == "no machine was found in time"

    run_virtual(work())


def test_a_borrower_is_told_of_our_machines_once_however_often_it_asks() -> None:
    async def work() -> None:
        async with two_pools(14) as flock:
            link = await as_physics(flock)
            ended = []

            async def listen(number: int) -> None:
                try:
                    async with await link.stream("world.offers", {}) as stream:
                        async for _ in stream:
                            pass
                except RemoteError:
                    ended.append(number)

            listening = []
            for number in range(20):
                listening.append(asyncio.create_task(listen(number)))
                await flock.settle(0.05)
            await flock.settle(1)
            assert sorted(ended)[:19] == list(range(19)), "each ends the one before"
            gc.collect()
            borrowers = [one for one in gc.get_objects() if isinstance(one, Borrower) and one.pool == "physics"]
            assert len(borrowers) <= 1
            listening[-1].cancel()
            await link.close()
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)

    run_virtual(work())


def test_words_of_another_pool_steer_no_terminal() -> None:
    """Its refusal stands in `why` of our users, and its trouble in our administrator's status, each in one line."""

    async def work() -> None:
        async with two_pools(15) as flock:
            methods = methods_of(flock, "chem")
            honest = methods["world.claim"]

            async def refuse(call: Any, params: Any) -> Any:
                raise NoWay("no\x1b]0;owned\x07 machine\n  bio: 3 idle machines\u202e" + "x" * 5000)

            methods["world.claim"] = replace(honest, function=refuse)
            await flock.submit("physics", owner="alice")
            borrowing = _world(flock, "physics").borrowing
            await flock.run_until(lambda: bool(borrowing.refusals), within=60)
            (said,) = borrowing.refusals.values()
            assert said.startswith("no ]0;owned machine bio: 3 idle machines x")
            assert len(said) <= 500
            assert said.isprintable()
            methods["world.claim"] = honest
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)

    run_virtual(work())
