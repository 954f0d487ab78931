"""Real roles on machines that do not exist, on a virtual clock: two schedds and two startds.

The victims are `alice`, her schedd `head` and the machine `m1` that runs her jobs. The attackers are a user `mallory`,
and whoever has broken into the nodes `s2` (a schedd) and `m2` (a startd). Carol's job at `s2` runs on `m2`: both
hold a good claim, and get another one where their own calls have ended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from pool.client import Pool
from pool.errors import PoolError
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import Connection, Dispatcher
from pool.wire.identity import ANONYMOUS
from tests.hostile.attack import Attack
from tests.hostile.drawing import Drawing
from tests.hostile.recording import Record

SETTINGS = {
    **{"CLAIM_LEASE": "60", "UPDATE_INTERVAL": "30", "AD_LIFETIME": "100", "NEGOTIATION_INTERVAL": "60", "SLOTS": "3"},
    "CHECKPOINT_FIRST": "100",
}
SECRET = "sesame-of-alice"
#: The attributes of a job's ad about its state that no stranger may change.
KEPT = ("JobStatus", "NumJobStarts", "JobPrio", "HoldReason", "Requirements", "Cmd", "Owner", "Environment")


class Defects(logging.Handler):
    """Keeps what is logged with a stack trace."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
            about = getattr(record, "method", "") or getattr(record, "task", "")
            self.seen.append(f"logged: {record.getMessage()} {about}: {error!r} at {where}")

    @contextlib.contextmanager
    def listening(self) -> Any:
        """Of all roles of this process."""
        logger = logging.getLogger("pool")
        logger.addHandler(self)
        try:
            yield self
        finally:
            logger.removeHandler(self)


class SimulatedPool:
    """The target of the attack; see `tests.hostile.attack.Target`."""

    callers: tuple[str, ...] = ("stranger", "user", "startd", "schedd")
    silence = 1.0
    together = 8

    def __init__(self, pool: SimPool, defects: Defects, job: dict[str, Any]) -> None:
        self.pool = pool
        self.defects = defects
        self.job = job
        self.first = self.held()

    def dispatchers(self) -> Mapping[str, Dispatcher]:
        found = {}
        for name in ("head", "m1", "s2", "m2"):
            dispatcher = self.pool.nodes[name].dispatcher
            assert dispatcher is not None
            found[name] = dispatcher
        return found

    async def link(self, caller: str, node: str) -> Connection:
        network = self.pool.network
        if caller == "user":
            return await network.user("mallory", node)
        if caller == "stranger":
            return await network.host("away", identity=ANONYMOUS).connect(f"mem://{node}")
        name = {"startd": "m2", "schedd": "s2"}[caller]
        return await network.host(name, roles=[caller]).connect(f"mem://{node}")

    def held(self) -> tuple[str, tuple[int, int]] | None:
        """The claim and the job that `s2` has on `m2`."""
        for claim in self.pool.role("s2", "schedd").placement.claims.values():
            if claim.job is not None and claim.start is not None and not claim.over and not claim.lost:
                return claim.id, claim.job.id
        return None

    async def ready(self, caller: str) -> dict[str, Any]:
        if caller in ("startd", "schedd"):
            if self.held() is None:
                await self.pool.submit("s2", owner="carol", ad=self.job)
                with contextlib.suppress(TimeoutError):
                    await self.pool.run_until(lambda: self.held() is not None, within=200)
            if (now := self.held()) is not None and self.first is not None:
                return {self.first[0]: now[0], str(list(self.first[1])): list(now[1])}
        return {}

    async def tidy(self) -> None:
        for node, owner in (("head", "alice"), ("s2", "carol")):
            async with await self.pool.connect("root", node, administer=True) as pool:
                await pool.call("schedd.act", {"action": "remove", "constraint": f'Owner != "{owner}"'})

    def secrets(self) -> set[str]:
        found = {SECRET}
        m1 = self.pool.role("m1", "startd")
        for slot in m1.slots.values():
            found |= {slot.key} if slot.key else set()
            if slot.claim is not None and slot.claim.node == "head":
                found.add(slot.claim.id)
        return found | set(m1.peers._tickets.values()) | {offer.ticket for offer in m1.peers._offers.values()}

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for job in self.pool.role("head", "schedd").queue.jobs():
            if job.cluster.owner == "alice":
                wire = job.wire()
                found[f"job {job.id}"] = {name: wire.get(name) for name in KEPT}
        m1 = self.pool.role("m1", "startd")
        found["claims of m1"] = {
            name: (slot.claim.id, slot.claim.node)
            for name, slot in m1.slots.items()
            if slot.claim is not None and slot.claim.owner == "alice"
        }
        found["drained"] = m1.draining.state.on
        for (kind, name), entry in self.pool.role("head", "collector")._registry.entries.items():
            if entry.holder.partition("#")[0] in ("head", "m1") and kind != "Submitter":
                found[f"ad {kind} {name}"] = {key: entry.ad.get(key) for key in ("Machine", "Name", "MyType", "Arch")}
        return found

    def broken(self) -> list[str]:
        wrong = list(self.defects.seen)
        for name, node in self.pool.nodes.items():
            wrong += [f"the role {role} of {name} went down" for role in sorted(set(node.roles) - set(node.running))]
            wrong += [f"{name}: {error!r}" for error in node.failures]
        if len([job for job, machine in self.pool.witness.running.items() if machine == "m1"]) < 2:
            wrong.append("alice's jobs do not run any more")
        return wrong


@contextlib.asynccontextmanager
async def simulated(seed: int, record: Record, defects: Defects, place: Path) -> AsyncIterator[SimulatedPool]:
    """The pool, with jobs of everybody, and what was said to bring it there."""
    with record.listening():
        pool = SimPool(seed, settings=SETTINGS, stateful=True)
        await pool.__aenter__()
    try:
        with record.listening():
            await pool.add("head", "collector,negotiator,schedd")
            for name in ("m1", "m2"):
                await pool.add(name, "startd", behave=_behave)
            await pool.add("s2", "schedd")
            carols = await _fill(pool, place)
        yield SimulatedPool(pool, defects, carols)
    finally:
        await pool.__aexit__()


def files_in(place: Path) -> None:
    """The files that paths of hostile calls lead to."""
    for name in ("home", "private"):
        (place / name).mkdir()
    (place / "private" / "secret").write_text(SECRET)
    (place / "home" / "link").symlink_to(place / "private")
    os.mkfifo(place / "fifo")


def _behave(spec: Any) -> Behaviour:
    return Behaviour(1.0 if spec.argv[-1:] == ("short",) else 1e9, saving=0.5)


async def _fill(pool: SimPool, place: Path) -> dict[str, Any]:
    """Jobs of all kinds, and every question that a user has; returns a job of Carol's."""
    iwd = {"Iwd": f"{place}/home"}
    transfer = {"ShouldTransferFiles": "YES", "WantCheckpoint": True}
    there = {**iwd, "Requirements": ['TARGET.Machine == "m1"']}
    here = {**iwd, "Requirements": ['TARGET.Machine == "m2"']}
    private = {"Environment": f"TOKEN={SECRET}", "Out": "out", "Err": "err"}
    await pool.submit("head", ad={**there, **private, "Args": "short"})
    await pool.submit("head", count=2, ad={**there, **private})
    await pool.submit("head", ad={**iwd, **private, "Requirements": ["false"]})
    await pool.submit("head", count=2, ad={**iwd, **private, "JobStatus": 5, "HoldReason": "of herself"})
    await pool.submit("head", owner="mallory", ad=here)
    carol = await pool.network.user("carol", "s2")
    for _ in range(20):  # no two jobs of the pool have one number: runs are told apart by it
        await carol.call("schedd.reserve", {})
    await carol.close()
    await pool.submit("s2", owner="carol", ad={**here, **transfer})
    await pool.submit("s2", owner="carol", ad={**here, "Args": "short"})
    await pool.run_until(lambda: len(pool.witness.running) >= 4, within=600)
    for user, at, administer in (("alice", "head", False), ("carol", "s2", False), ("root", "head", True)):
        async with await pool.connect(user, at, administer=administer) as asks:
            await _ask(asks, user)
    await pool.run_until(lambda: len(pool.witness.running) >= 4, within=600)
    return {**here, **transfer}


async def _ask(asks: Pool, user: str) -> None:
    ids = [[int(ad["ClusterId"]), int(ad["ProcId"])] for ad in await asks.gather("schedd.query", {"limit": 9})]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("schedd.why", {"id": ids[0] if ids else [1, 0]}),
        ("schedd.checkpoints", {}),
        ("schedd.summary", {}),
        ("schedd.act", {"action": "prio", "ids": ids[:1], "value": 3}),
        ("schedd.act", {"action": "hold", "constraint": "false", "reason": "x"}),
        ("schedd.act", {"action": "edit", "ids": ids[:1], "value": {"Note": "x"}}),
        ("schedd.drop_checkpoints", {"jobs": ["1.0"]}),
        ("schedd.reserve", {}),
        ("node.ping", {}),
        ("node.settings", {"names": ["SLOTS"]}),
        ("negotiator.users", {}),
    ]
    streams: list[tuple[str, dict[str, Any]]] = [
        ("schedd.query", {"constraint": "JobStatus == 2", "attributes": ["Cmd"], "owner": user, "limit": 3}),
        ("schedd.history", {"ids": ids[:2]}),
        ("schedd.watch", {"cluster": 1, "after": 0}),
        ("schedd.tail", {"id": ids[0] if ids else [1, 0], "file": "Out", "lines": 3}),
        ("schedd.submit_large", {"ad": {"Cmd": "/bin/true", "Requirements": ["false"]}, "count": 1}),
        ("collector.query", {"type": "Machine", "constraint": "Cpus > 0", "attributes": ["Name"]}),
        ("collector.watch", {"types": ["Machine"]}),
    ]
    for name, params in calls:
        with contextlib.suppress(PoolError):
            await asks.call(name, params)
    for name, params in streams:
        with contextlib.suppress(PoolError, TimeoutError):
            async with asyncio.timeout(1):
                await asks.gather(name, params)


async def attack(seed: int, calls: int, only: str = "") -> Attack:
    """Call each method so often by each caller."""
    record, defects = Record(SECRET), Defects()
    with tempfile.TemporaryDirectory(prefix="hostile-") as place, defects.listening():
        files_in(Path(place))
        async with simulated(seed, record, defects, Path(place)) as target:
            run = Attack(target, Drawing(random.Random(seed), record, Path(place)))
            await run.run(calls, only)
            return run
