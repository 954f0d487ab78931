"""The limits of a node that has joined and may speak: it may not pass for users, for other nodes, for other roles."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.client import Pool
from pool.remoteio.frames import VERSION
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import Connection, RemoteError
from pool.wire.errors import ConnectionLost
from tests.roles.support import QUICK, asking


async def joined(pool: SimPool, name: str, role: str) -> Connection:
    """A connection to the head from a node that holds a good certificate and runs a program of its own."""
    return await pool.network.host(name, roles=[role]).connect("mem://head")


async def advertise(link: Connection, kind: str, name: str, ad: dict[str, Any]) -> list[list[str]]:
    update = {"kind": kind, "name": name, "sequence": 1, "whole": True, "ad": ad, "lifetime": 900.0}
    answer = await link.call("collector.update", {"incarnation": "x", "updates": [update]})
    refused: list[list[str]] = answer["refused"]
    return refused


def test_a_machines_ad_says_whose_it_is_by_its_certificate() -> None:
    """Else a node that calls its machine by another's name gets the jobs that are meant for that one."""

    async def work() -> None:
        async with SimPool(10, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            link = await joined(pool, "desk", "startd")
            lies = {"Machine": "safe", "machine": "safe", "NAME": "slot1@safe", "Name": ["Machine"], "MyType": "Job"}
            assert not await advertise(link, "Machine", "slot1@desk", {**lies, "Memory": 1})
            entry = pool.role("head", "collector")._registry.entries[("Machine", "slot1@desk")]
            truth = {"Machine": "desk", "Name": "slot1@desk", "MyType": "Machine", "Memory": 1}
            assert entry.ad == truth
            later = {"kind": "Machine", "name": "slot1@desk", "sequence": 2, "whole": False, "lifetime": 900.0}
            changes = [later | {"ad": lies, "gone": ["Machine", "nAME", "Memory"]}]
            assert not (await link.call("collector.update", {"incarnation": "x", "updates": changes}))["refused"]
            assert entry.ad == {name: value for name, value in truth.items() if name != "Memory"}
            await link.close()
            odd = await joined(pool, "slot1@safe", "startd")
            (refused,) = await advertise(odd, "Machine", "slot1@safe", {})
            assert "holds no @" in refused[2]
            await odd.close()

    run_virtual(work())


@pytest.mark.parametrize("verb", ["submit", "reserve", "act"])
def test_a_node_named_like_a_user_is_not_that_user(verb: str) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            link = await joined(pool, "alice", "schedd")
            params = {"ad": {"Cmd": "/bin/true"}, "count": 1, "action": "remove", "owner": "alice", "all": True}
            with pytest.raises(RemoteError, match="node alice is no user"):
                await link.call(f"schedd.{verb}", params)
            assert not list(pool.role("head", "schedd").queue.jobs())
            await link.close()

    run_virtual(work())


def test_a_node_advertises_what_its_roles_have_and_in_its_own_name() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            startd, schedd = await joined(pool, "desk", "startd"), await joined(pool, "home", "schedd")
            for link, kind, name in (
                (startd, "Submitter", "alice@desk"),
                (startd, "Negotiator", "desk"),
                (schedd, "Machine", "slot1@home"),
                (schedd, "Submitter", "alice@head"),
                (schedd, "Scheduler", "head"),
                (schedd, "Anything", "home"),
            ):
                refused = await advertise(link, kind, name, {"MyType": kind})
                assert refused, (kind, name)
                assert refused[0][:2] == [kind, name]
            assert not await advertise(schedd, "Submitter", "alice@home", {"MyType": "Submitter", "Node": "head"})
            ad = pool.role("head", "collector")._registry.entries[("Submitter", "alice@home")].ad
            assert ad["Node"] == "home"
            for link in (startd, schedd):
                await link.close()

    run_virtual(work())


def test_a_machine_that_only_runs_a_job_reaches_none_of_its_owners_files() -> None:
    """`remote_io` is for a start whose job works on files on the submit side; any other claim opens nothing (B5)."""

    async def work() -> None:
        async with SimPool(8, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("desk", "startd", behave=lambda spec: Behaviour(500.0))
            await pool.submit("head", ad={"ShouldTransferFiles": "YES"})
            placement = pool.role("head", "schedd").placement
            await pool.run_until(lambda: any(claim.start for claim in placement.claims.values()), 60)
            (claim,) = placement.claims.values()
            link = await joined(pool, "desk", "startd")
            params = {"claim": claim.id, "run": claim.run, "again": False}
            refusals: tuple[tuple[dict[str, Any], str], ...]
            refusals = (({"frames": VERSION}, "does not work on its owner's files"), ({}, "speaks version 1 of"))
            for more, said in refusals:
                stream = await link.stream("schedd.remote_io", params | more)
                with pytest.raises(RemoteError, match=said):
                    await stream.receive()
            await link.close()

    run_virtual(work())


def test_trees_that_this_machine_shows_no_job_are_refused_before_a_job_is_queued() -> None:
    async def work() -> None:
        async with SimPool(9, settings=QUICK | {"REMOTE_IO_TREES": "/home /data:ro"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            link = await pool.network.user("alice", "head")
            for trees, said in (("/root", "names /root, which this submit machine shows no job"), ("x", "absolute")):
                with pytest.raises(RemoteError, match=said):
                    await link.call("schedd.submit", {"ad": {"Cmd": "/bin/true", "RemoteIOTrees": trees}, "count": 1})
            ad = {"Cmd": "/bin/true", "RemoteIOTrees": "/home/alice,/"}
            assert (await link.call("schedd.submit", {"ad": ad, "count": 1}))["count"] == 1
            await link.close()

    run_virtual(work())


JUNK: tuple[Any, ...] = (None, True, -1, 10**17, 2.5, "x", "", b"x", [], [None], ["x"], [[]], [["x"]], {}, {"x": 1})


def test_no_parameters_of_a_user_fail_a_method() -> None:
    """Whatever a user's program sends is answered in words: an "internal error" would be a stack trace in the log."""

    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd,startd")
            link = await pool.network.user("mallory", "head", administer=True)
            await link.call("schedd.submit", {"ad": {"Cmd": "/bin/true"}, "count": 3})
            failed: list[tuple[str, dict[str, Any]]] = []
            dispatcher = pool.nodes["head"].dispatcher
            assert dispatcher is not None
            for name, entry in sorted(dispatcher._methods.items()):
                takes = entry.declared.takes
                fitting = {"action": "prio", "all": True, "count": 1, "lease": 5, "id": [1, 0], "ad": {}}
                base = {key: fitting.get(key, "x") for key, kind in takes.items() if key in fitting or kind is str}
                tries: list[dict[str, Any]] = [{}, base]
                tries += [base | {key: value} for key in [*takes, "value", "file", "follow"] for value in JUNK]
                for params in tries:
                    try:
                        if entry.declared.streaming:
                            await listen(link, name, params)
                        elif name not in ("node.stop", "node.die"):
                            await link.call(name, params, timeout=5)
                    except RemoteError as error:
                        failed += [(name, params)] if error.kind == "InternalError" else []
                    except ConnectionLost:  # without its ticket a direct connection is closed without a word
                        assert name.endswith(".direct"), name
                        link = await pool.network.user("mallory", "head", administer=True)
            assert not failed
            await link.close()

    run_virtual(work())


async def listen(link: Connection, name: str, params: dict[str, Any]) -> None:
    """The items of a streaming method until it falls silent."""
    stream = await link.stream(name, params)
    try:
        async with asyncio.timeout(1):
            async for _ in stream:
                pass
    except TimeoutError:
        pass
    finally:
        stream.abort()


def test_a_jobs_environment_is_seen_by_its_owner_and_administrators_alone() -> None:
    """Not in listings, not by asking for it in a constraint, and nowhere on the way to a match."""
    secret = "TOKEN=sesame"

    async def listed(user: Pool, **question: Any) -> list[dict[str, Any]]:
        found = []
        for verb in ("query", "history"):
            found += await user.gather(f"schedd.{verb}", question)
        return found

    async def work() -> None:
        heard: list[Any] = []
        async with SimPool(7, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            ad = {"Environment": secret, "ENV": secret, "UserLog": "/dev/null"}
            ended = await pool.submit("head", ad={"environment": secret})
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(5.0 if "1." in spec.id else 1000.0))
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            queued = await pool.submit("head", ad=ad)
            await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
            waiting = await pool.submit("head", ad=ad)
            async with asking(pool, "alice") as alice, asking(pool, "bob") as bob:
                seen = [[ad[name] for name in ("Environment", "Env") if name in ad] for ad in await listed(alice)]
                assert seen == [[secret, secret], [secret, secret], [secret]]
                for question in ({}, {"attributes": ["ClusterId", "Environment", "Env"]}):
                    for ad in await listed(bob, **question):
                        assert "sesame" not in repr(ad)
                        assert "ClusterId" in ad
                by_it = 'regexp("sesame", Environment) || regexp("sesame", Env)'
                assert len(await listed(alice, constraint=by_it)) == 3
                assert await listed(bob, constraint=by_it) == []
                refused = await bob.call("schedd.act", {"action": "hold", "constraint": by_it})
                assert (refused["done"], refused["refused"]) == (0, [])
                async for batch in bob.events():
                    heard += batch
                    if not batch:
                        break
                assert {event["cluster"] for event in heard} == {ended, queued, waiting}
            link = await joined(pool, "other", "negotiator")
            asked = await link.call("schedd.requests", {"submitter": "alice@head", "limit": 10})
            assert len(asked["requests"]) == 1
            await link.close()
            known = [(entry.ad, entry.private) for entry in pool.role("head", "collector")._registry.entries.values()]
            assert "sesame" not in repr([heard, asked, known])
            pool.assert_sound()

    run_virtual(work())


def test_passwords_in_urls_of_inputs_are_seen_by_their_owner_and_administrators_alone() -> None:
    """Not in listings, not by asking for them in a constraint, and nowhere on the way to a match."""
    urls = "https://alice:sesame@host/data, https://host/x?X-Amz-Signature=sesame&y=1"

    async def work() -> None:
        async with SimPool(12, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head", ad={"transferINPUT": urls, "Args": urls, "Requirements": ["false"]})
            async with asking(pool, "alice") as alice, asking(pool, "bob") as bob:
                async with asking(pool, "root", administer=True) as root:
                    for user in (alice, root):
                        (ad,) = await user.gather("schedd.query", {})
                        assert ad["TransferInput"] == urls
                for question in ({}, {"attributes": ["TransferInput", "Args"]}):
                    (ad,) = await bob.gather("schedd.query", question)
                    assert "sesame" not in repr(ad)
                    hidden = "https://(secret)@host/data, https://host/x?X-Amz-Signature=(secret)&y=1"
                    assert (ad["TransferInput"], ad["Args"]) == (hidden, hidden)
                by_it = 'regexp("sesame", TransferInput) || regexp("sesame", Args)'
                assert len(await alice.gather("schedd.query", {"constraint": by_it})) == 1
                assert await bob.gather("schedd.query", {"constraint": by_it}) == []
                await alice.call("schedd.act", {"action": "remove", "all": True})
                (ad,) = await bob.gather("schedd.history", {})
                assert "sesame" not in repr(ad)
            link = await joined(pool, "other", "negotiator")
            asked = await link.call("schedd.requests", {"submitter": "alice@head", "limit": 10})
            assert "sesame" not in repr(asked)
            await link.close()

    run_virtual(work())
