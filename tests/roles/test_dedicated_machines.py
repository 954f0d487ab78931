"""Machines of a dedicated scheduler, real startds: who may claim as it, whose its jobs are, what the owner may do.

Negotiator and schedds are played here, so that each can lie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pool.classad import ClassAd
from pool.jobs.activation import activation
from pool.policy.managed import RANK
from pool.policy.slots import BUSY, CLAIMED_IDLE, SUSPENDED
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import Connection, Dispatcher, RemoteError, Right, Service, method
from tests.roles.support import QUICK, told

SETTINGS = {**QUICK, "POLICY": "desktop", "DEDICATED_SCHEDULER": "head", "EVALUATE_INTERVAL": "5"}
OURS = "DedicatedScheduler@head"


class Schedd(Service):
    """As much of a schedd as a startd asks: it renews, and takes ends."""

    @method(Right.EXECUTE)
    async def renew(self, call: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"gone": []}

    @method(Right.EXECUTE)
    async def report(self, call: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    @method(Right.EXECUTE)
    async def ended(self, call: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"next": None, "keep": True}


class Story:
    def __init__(self, pool: SimPool) -> None:
        self.pool = pool
        self.links: list[Connection] = []

    async def schedd(self, node: str) -> Connection:
        dispatcher = Dispatcher()
        dispatcher.add("schedd", Schedd())
        host = self.pool.network.host(node, roles=("schedd",))
        self.links.append(link := await host.connect("mem://m1", dispatcher))
        return link

    async def grant(self, submitter: str, node: str) -> str:
        """The negotiator gives the machine to somebody; returns the slot's secret."""
        await self.pool.run_until(lambda: bool(self.key()), within=60)
        key = self.key()
        link = await self.pool.network.host("broker", roles=("negotiator",)).connect("mem://m1")
        given = {"slot": "slot1@m1", "claim": key, "count": 1, "submitter": submitter, "node": node}
        assert (await link.call("startd.matched", {"grants": [given]}))["accepted"] == [0]
        await link.close()
        return key

    def key(self) -> str:
        entry = self.pool.role("head", "collector")._registry.entries.get(("Machine", "slot1@m1"))
        return str((entry.private or {}).get("ClaimId", "")) if entry is not None else ""

    async def claim(self, link: Connection, key: str, submitter: str, **ad: Any) -> Any:
        wanted = {"Owner": "alice", "User": "alice@simulation", "Requirements": ["true"], **ad}
        asked = {"slot": "slot1@m1", "claim": key, "submitter": submitter, "lease": 600.0, "ad": wanted, "count": 1}
        return await link.call("startd.claim", asked)

    async def start(self, link: Connection, claim: str, number: int, owner: str, **own: Any) -> None:
        ad: dict[str, Any] = {"Cmd": "/bin/true", "Iwd": "/", "Owner": owner, "User": f"{owner}@simulation"}
        ad |= {"ClusterId": number, "ProcId": 0, "Requirements": ["true"], "FileSystemDomain": "simulation"}
        start = activation(ClassAd.from_wire(ad), ClassAd({"FileSystemDomain": "simulation"}), 1, None)
        order = {"claim": claim, "base": None, "start": start.to_wire(), "shared": ad, "own": own}
        await link.call("startd.activate", order)

    @property
    def slot(self) -> Any:
        return self.pool.role("m1", "startd").slots["slot1"]

    def ad(self) -> dict[str, Any]:
        return told(self.pool, "slot1@m1")[0]


def play(story: Any, **settings: str) -> None:
    async def work() -> None:
        async with SimPool(5, settings={**SETTINGS, **settings}) as pool:
            await pool.add("head", "collector")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(300.0))
            told_story = Story(pool)
            done: Coroutine[Any, Any, None] = story(told_story)
            await done
            for link in told_story.links:
                await link.close()

    run_virtual(work())


def test_one_claim_serves_several_users_and_counts_to_whose_job_runs() -> None:
    """W12; and W2: a key that is touched disturbs neither."""

    async def story(at: Story) -> None:
        head = await at.schedd("head")
        at.pool.nodes["m1"].sensors.touched = at.pool.wall()
        made = await at.claim(head, await at.grant(OURS, "head"), OURS)
        claim = made["claims"][0]["claim"]
        await at.pool.run_until(lambda: at.ad().get("State") == "Claimed", within=5)
        assert (at.ad()["RemoteUser"], at.ad()["RemoteOwner"]) == (OURS, "DedicatedScheduler")
        for number, owner in enumerate(("alice", "bob"), 1):
            await at.start(head, claim, number, owner, Scheduler=OURS)
            await at.pool.run_until(lambda owner=owner: at.ad()["RemoteUser"] == f"{owner}@head", within=5)  # type: ignore[misc]
            at.pool.nodes["m1"].sensors.touched = at.pool.wall()
            await asyncio.sleep(60)
            assert at.slot.condition == BUSY
            assert at.ad()["CurrentRank"] == RANK
            await at.pool.run_until(lambda: at.slot.condition == CLAIMED_IDLE, within=300)
            await at.pool.run_until(lambda: at.ad()["RemoteUser"] == OURS, within=5)
        assert [job for job, _, _ in at.pool.witness.starts] == ["1.0", "2.0"]

    play(story)


def test_a_job_that_the_machine_is_lent_to_has_the_owners_policy_and_the_claim_stays() -> None:
    async def story(at: Story) -> None:
        head = await at.schedd("head")
        claim = (await at.claim(head, await at.grant(OURS, "head"), OURS))["claims"][0]["claim"]
        at.pool.nodes["m1"].sensors.touched = at.pool.wall()
        await asyncio.sleep(6)
        with pytest.raises(RemoteError, match="does not accept job"):
            await at.start(head, claim, 1, "carol")
        await asyncio.sleep(20)
        assert at.slot.condition == CLAIMED_IDLE, "a start that the owner refuses costs the scheduler nothing"
        at.pool.nodes["m1"].sensors.touched = at.pool.wall() - 10_000
        await asyncio.sleep(6)
        await at.start(head, claim, 2, "carol")
        await asyncio.sleep(10)
        assert at.ad()["CurrentRank"] == RANK, "nobody preempts the scheduler while it lends"
        at.pool.nodes["m1"].sensors.touched = at.pool.wall()
        await asyncio.sleep(6)
        assert at.slot.condition == SUSPENDED
        at.pool.nodes["m1"].sensors.touched = at.pool.wall() - 10_000
        await at.pool.run_until(lambda: at.slot.condition == CLAIMED_IDLE, within=600)
        at.pool.nodes["m1"].sensors.touched = at.pool.wall()
        await asyncio.sleep(60)
        assert at.slot.condition == CLAIMED_IDLE, "an empty claim is the scheduler's, whatever ran on it last"

    play(story)


def test_nobody_passes_for_the_dedicated_scheduler() -> None:
    """The hostile schedd has a good certificate of its own, and knows the machine's secret."""

    async def story(at: Story) -> None:
        evil = await at.schedd("evil")
        key = await at.grant(OURS, "head")
        for submitter in (OURS, "DedicatedScheduler@evil", "eve@evil"):
            with pytest.raises(RemoteError, match="was not matched to"):
                await at.claim(evil, key, submitter, Scheduler=OURS)
        # A negotiator that was fooled: the grant is for the evil node under the scheduler's name, or under its own.
        for submitter in (OURS, "DedicatedScheduler@evil"):
            key = await at.grant(submitter, "evil")
            with pytest.raises(RemoteError, match="is not managed by DedicatedScheduler@"):
                await at.claim(evil, key, submitter, Scheduler=OURS)
        # An honest grant to a user of it, and a job that says whose it is.
        at.pool.nodes["m1"].sensors.touched = at.pool.wall() - 10_000
        await asyncio.sleep(40)
        key = await at.grant("eve@evil", "evil")
        made = await at.claim(evil, key, "eve@evil", Scheduler=OURS, scheduler=OURS)
        claim = made["claims"][0]["claim"]
        await at.start(evil, claim, 1, "alice", Scheduler=OURS, SCHEDULER=OURS)
        await asyncio.sleep(5)
        assert at.ad()["RemoteUser"] == "eve@evil", "and her jobs run as hers"
        assert at.slot.claim.owner == "eve"
        assert at.ad()["CurrentRank"] == 0.0
        at.pool.nodes["m1"].sensors.touched = at.pool.wall()
        await asyncio.sleep(6)
        assert at.slot.condition == SUSPENDED
        # And the claim of the real one is of no use to it.
        stolen = at.slot.claim.id
        with pytest.raises(RemoteError, match="no such claim"):
            await at.start(await at.schedd("other"), stolen, 2, "alice")

    play(story)


def test_a_machine_that_names_no_scheduler_has_none() -> None:
    async def story(at: Story) -> None:
        key = await at.grant(OURS, "head")
        with pytest.raises(RemoteError, match="is not managed by DedicatedScheduler@head"):
            await at.claim(await at.schedd("head"), key, OURS)

    play(story, DEDICATED_SCHEDULER="", POLICY="dedicated")


def test_a_machine_becomes_dedicated_and_ordinary_again_while_a_job_runs() -> None:
    """W1: one setting, read again; the job that runs is not touched."""

    async def story(at: Story) -> None:
        link = await at.schedd("head")
        at.pool.nodes["m1"].sensors.touched = at.pool.wall() - 10_000
        claim = (await at.claim(link, await at.grant("carol@head", "head"), "carol@head"))["claims"][0]["claim"]
        await at.start(link, claim, 1, "carol")
        startd = at.pool.role("m1", "startd")
        plain = startd.settings
        for text in ("head", "head, other", ""):
            startd.reload(at.pool._loaded({**SETTINGS, "NODE_NAME": "m1", "DEDICATED_SCHEDULER": text}))
            await asyncio.sleep(10)
            assert at.slot.condition == BUSY
            assert at.ad().get("DedicatedScheduler") == (OURS if text else None)
        assert startd.settings is not plain
        await at.pool.run_until(lambda: at.slot.condition == CLAIMED_IDLE, within=300)
        assert len(at.pool.witness.starts) == 1

    play(story, DEDICATED_SCHEDULER="")


def test_a_startd_that_is_restarted_still_knows_whose_the_job_is() -> None:
    """The owner sits down while the schedd has not come back: the dedicated job stays."""

    async def story(at: Story) -> None:
        head = await at.schedd("head")
        claim = (await at.claim(head, await at.grant(OURS, "head"), OURS))["claims"][0]["claim"]
        await at.start(head, claim, 1, "alice", Scheduler=OURS)
        await asyncio.sleep(5)
        await at.pool.kill("m1")
        await at.pool.restart("m1")
        at.pool.nodes["m1"].sensors.touched = at.pool.wall()
        await asyncio.sleep(30)
        assert at.slot.condition == BUSY
        assert at.ad()["RemoteUser"] == "alice@head"

    play(story)
