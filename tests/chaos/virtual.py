"""The pool of a round on the virtual clock: real roles, machines and a network that do not exist (`pool.testing`)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.jobs.events import EventKind
from pool.policy.queue import COMPLETED
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.disks import memory_directory
from pool.testing.keepers import Behaviour, FakeKeeper
from pool.testing.pool import SimPool
from tests.chaos.checker import violations
from tests.chaos.faults import HEAD, NODES, ROLES, SCHEDDS, STARTDS, Fault, Kind, Plan, plan
from tests.chaos.record import JobName, Outcome, Record, Run

#: For so long after the last fault everything has time to end, seconds.
PATIENCE = 8000.0
#: The share of jobs that have their input carried to the machine.
CARRIED = 0.3


class Observer:
    """Sees every program begin and end, and writes it down."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def began(self, keeper: FakeKeeper, machine: str, now: float) -> None:
        run = Run(int(keeper.id.split(".")[2]), machine, now)
        job = job_of(keeper.spec)
        self.record.runs[job].append(run)

        def ended(done: asyncio.Future[Any]) -> None:
            end = done.result()
            run.ended, run.whole = end.ended, end.cause == "exit"

        keeper.ended.add_done_callback(ended)


def job_of(spec: KeeperSpec) -> JobName:
    """The job of a start, distinct from those of other schedds."""
    cluster, proc, *_ = spec.id.split(".")
    return str(spec.claim["node"]), int(cluster), int(proc)


def run_round(seed: int) -> list[str]:
    """Carry out the plan of a seed; what broke a rule, a line each."""
    with tempfile.TemporaryDirectory(prefix="poolnode-chaos-", dir=memory_directory()) as directory:
        record = run_virtual(Round(plan(seed), Path(directory)).play())
    return violations(record)


class Round:
    """One plan on one pool."""

    def __init__(self, given: Plan, directory: Path) -> None:
        self.plan = given
        self.record = Record()
        self.chance = random.Random(f"round {given.seed}")
        self._directory = directory
        (directory / "input").write_bytes(b"input")
        self._carried = {
            "Iwd": str(directory),
            "ShouldTransferFiles": "YES",
            "TransferExecutable": False,
            "TransferInput": "input",
        }
        self._seconds: dict[JobName, float] = {}

    async def play(self) -> Record:
        """From the first submit until all has ended, long after the last fault."""
        lease = str(self.plan.lease)
        settings = {
            "CLAIM_LEASE": lease,
            "UPDATE_INTERVAL": "30",
            "AD_LIFETIME": "100",
            "NEGOTIATION_INTERVAL": "30",
            "SLOTS": str(self.plan.slots),
        }
        async with SimPool(self.plan.seed, settings=settings, directory=self._directory) as pool:
            self.pool = pool
            self._usual_delay = pool.network.delay
            await pool.add(HEAD, "collector,negotiator")
            for name in SCHEDDS:
                await pool.add(name, "schedd")
            for name in STARTDS:
                node = await pool.add(name, "startd", behave=self._behave)
                self._observe(node.machine)
            for name in SCHEDDS:
                await self._submit(name)
            await self._go_wrong()
            await self._calm_down()
            await self._look()
            self.record.failures += [f"the witness saw two copies: {double}" for double in pool.witness.doubles]
        return self.record

    def _behave(self, spec: KeeperSpec) -> Behaviour:
        return Behaviour(self._seconds.get(job_of(spec), 1.0), dying=self.chance.choice((0.0, 0.0, 0.5)))

    def _observe(self, machine: Any) -> None:
        observer = Observer(self.record)
        machine.job_of = lambda spec: "/".join(str(part) for part in job_of(spec))
        keepers = machine.keepers

        class Watched(dict[str, FakeKeeper]):
            def __setitem__(self, key: str, keeper: FakeKeeper) -> None:
                super().__setitem__(key, keeper)
                observer.began(keeper, machine.name, asyncio.get_running_loop().time())

        machine.keepers = Watched(keepers)

    async def _submit(self, name: str) -> None:
        for seconds in self.plan.jobs[name]:
            carried = self._carried if self.chance.random() < CARRIED else {}
            cluster = await self.pool.submit(name, owner=f"user-of-{name}", ad=carried)
            job = (name, cluster, 0)
            self._seconds[job] = seconds
            self.record.accepted.append(job)

    # -- faults ------------------------------------------------------------------------------------------

    async def _go_wrong(self) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in self.plan.faults:
                group.create_task(self._happen(fault))

    async def _happen(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        pool, network = self.pool, self.pool.network
        match fault.kind:
            case Kind.KILL:
                await self._away(fault, pool.kill(fault.node))
            case Kind.REBOOT:
                await self._away(fault, pool.crash(fault.node))
            case Kind.FREEZE:
                for other in NODES:
                    if other != fault.node:
                        network.drop_silently(fault.node, other)
                await asyncio.sleep(fault.seconds)
                network.restore_links(fault.node)
            case Kind.CUT | Kind.SILENCE | Kind.ONE_WAY:
                doing = {Kind.CUT: network.cut, Kind.SILENCE: network.drop_silently, Kind.ONE_WAY: network.drop_one_way}
                doing[fault.kind](fault.node, fault.other)
                await asyncio.sleep(fault.seconds)
                network.restore_links(fault.node, fault.other)
            case Kind.DELAY:
                network.delay = (0.01, self.chance.uniform(0.05, 3.0))
                await asyncio.sleep(fault.seconds)
                network.delay = self._usual_delay
            case Kind.LOSS:
                network.loss = self.chance.uniform(0.001, 0.1)
                await asyncio.sleep(fault.seconds)
                network.loss = 0.0
            case Kind.ROLE:
                role = self.chance.choice(ROLES[fault.node[0]])
                if role in pool.nodes[fault.node].running:
                    await pool.restart_role(fault.node, role)
            case Kind.KEEPER_HANGS | Kind.KEEPER_DIES:
                await self._trouble_a_keeper(fault)
            case Kind.FULL_DISK:
                pool.fill_disk(fault.node)
                await asyncio.sleep(fault.seconds)
                pool.free_disk(fault.node)
            case Kind.VACATE:
                await self._ask(fault, "vacate")
            case Kind.HOLD:
                await self._ask(fault, "hold")
            case Kind.CALM:
                pass

    async def _away(self, fault: Fault, going: Coroutine[Any, Any, None]) -> None:
        if not self.pool.nodes[fault.node].running:
            going.close()
            return
        for keeper in list(self.pool.nodes[fault.node].machine.keepers.values()):
            keeper.go_on()  # nobody on the machine would end one that stands still while its node is dead
        await going
        await asyncio.sleep(fault.seconds)
        if not self.pool.nodes[fault.node].running:
            await self.pool.restart(fault.node)

    async def _trouble_a_keeper(self, fault: Fault) -> None:
        node = self.pool.nodes[fault.node]
        there = [one for one in node.machine.keepers.values() if not one.ended.done()]
        if not there:
            return
        keeper = there[fault.number % len(there)]
        if fault.kind is Kind.KEEPER_DIES:
            keeper.end_by_force()
            return
        if not node.running:
            return  # nobody on the machine would end it; see `_away`
        keeper.stop_answering()
        await asyncio.sleep(fault.seconds)
        keeper.go_on()

    async def _ask(self, fault: Fault, action: str) -> None:
        name = fault.node
        with contextlib.suppress(PoolError, OSError, TimeoutError):
            await self.pool.act(name, f"user-of-{name}", action=action, all=True)

    async def _calm_down(self) -> None:
        """All is well again; jobs that were held are released."""
        pool = self.pool
        pool.network.loss, pool.network.delay = 0.0, self._usual_delay
        pool.network.restore_links()
        for name in NODES:
            if not pool.nodes[name].running:
                await pool.restart(name)
        await asyncio.sleep(5.0)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while loop.time() < deadline and any(pool.queued(name) for name in SCHEDDS):
            for name in SCHEDDS:
                with contextlib.suppress(PoolError, OSError, TimeoutError):
                    await pool.act(name, f"user-of-{name}", action="release", all=True)
            await asyncio.sleep(20.0)

    async def _look(self) -> None:
        """The schedds' account of it all."""
        for name in SCHEDDS:
            schedd = self.pool.role(name, "schedd")
            for job in schedd.queue.jobs():
                self.record.left[(name, *job.id)] = f"{job.status}, {job.state}"
            for ad in await self.pool.ended(name):
                status = "completed" if ad["JobStatus"] == COMPLETED else f"in state {ad['JobStatus']}"
                code, times = ad.get("ExitCode"), int(ad.get("NumJobCompletions", 0))
                outcome = Outcome(status, code, times, float(ad.get("CompletionDate", 0)))
                self.record.outcomes[(name, ad["ClusterId"], ad["ProcId"])].append(outcome)
            async for rows in schedd.store.events():
                for row in rows:
                    if row.kind == EventKind.TERMINATED:
                        self.record.told[(name, row.cluster, row.proc)] += 1
        for name, node in self.pool.nodes.items():
            self.record.failures += [f"{name}: {error!r}" for error in node.failures]
