"""One round on a pool of real processes: jobs are submitted, the plan's faults happen, and all comes to rest."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from pool.errors import PoolError
from tests.chaos.checker import violations
from tests.chaos.faults import NODES, SCHEDDS, STARTDS
from tests.chaos.network import Direction, Trouble
from tests.chaos.real_cluster import Cluster
from tests.chaos.real_evidence import PART, Evidence, Submitted
from tests.chaos.real_faults import OF_PACKETS, RealFault, RealKind, RealPlan
from tests.chaos.real_machines import PATIENCE, Machine, send

#: Everything that goes wrong for a user while faults last.
TROUBLE = (PoolError, OSError, TimeoutError)
HELD = 5


@dataclass(slots=True)
class Done:
    """The outcome of a round."""

    seed: int
    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    copies: int = 0
    broken: list[str] = field(default_factory=list)


class RealRound:
    """One plan on the pool."""

    def __init__(self, cluster: Cluster, plan: RealPlan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.done = Done(plan.seed)
        self.jobs: list[Submitted] = []
        self._chance = random.Random(f"real round {plan.seed}")
        self._evidence = Evidence(cluster, self.jobs)
        self._began = time.monotonic()

    async def play(self) -> Done:
        """From the first submit until all has ended."""
        done = self.done
        self._prepare()
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for job in self.jobs:
                group.create_task(self._submit(job))
            for fault in self.plan.faults:
                group.create_task(self._happen(fault))
        await self._calm_down()
        record = await self._evidence.collect()
        done.broken = violations(record) + self._evidence.wrong_outputs(record) + self._evidence.traces()
        done.jobs = len(record.accepted)
        done.copies = sum(len(runs) for runs in record.runs.values())
        if done.broken:
            self._evidence.keep(f"seed-{self.plan.seed}", [*done.faults, "", *done.broken, ""])
            await self._remove_what_is_left()
        for job in self.jobs:
            shutil.rmtree(job.home, ignore_errors=True)
            self.cluster.reports.copies.pop(job.label, None)
        return done

    # -- jobs --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for schedd, jobs in self.plan.jobs.items():
            for number, given in enumerate(jobs):
                home = self.cluster.file_servers[schedd].path / f"{self.plan.seed}-{number}"
                home.mkdir()
                (home / "in").write_bytes(random.Random(f"{home}").randbytes(given.ticks * PART))
                label = f"{self.plan.seed}-{schedd}-{number}"
                self.jobs.append(Submitted(label, schedd, given, number, home))

    async def _submit(self, job: Submitted) -> None:
        await asyncio.sleep(job.given.at)
        words = [self.cluster.reports.path, job.label, job.given.ticks, job.seed]
        description = {
            "executable": str(self.cluster.program),
            "arguments": " ".join(str(word) for word in words),
            "transfer_input_files": "in",
            "transfer_output_files": "out",
            "should_transfer_files": "yes",
            "output": "stdout",
            "log": "log",
            "checkpoint": "auto" if job.given.checkpoint else "off",
            "request_memory": "16",
            "request_disk": "2M",
        }
        with contextlib.suppress(*TROUBLE):  # no answer: it may be there or not
            async with self.cluster.user(job.schedd) as pool:
                cluster = await pool.submit(description, iwd=str(job.home))
                job.name = (job.schedd, int(cluster.ids[0][0]), 0)

    # -- faults ------------------------------------------------------------------------------------------

    async def _happen(self, fault: RealFault) -> None:
        await asyncio.sleep(max(fault.at - (time.monotonic() - self._began), 0.0))
        at, line = time.monotonic() - self._began, len(self.done.faults)
        self.done.faults.append("")
        happened = await self._carry_out(fault)
        self.done.faults[line] = f"{at:6.2f} s  {fault}" + ("" if happened else "  (there was nothing to do it to)")
        if happened:
            self.done.kinds[fault.kind] += 1

    async def _carry_out(self, fault: RealFault) -> bool:
        kind, seconds = fault.kind, fault.seconds
        machine, network = self.cluster.machines[fault.node], self.cluster.network
        match kind:
            case RealKind.KILL:
                await machine.kill(seconds)
            case RealKind.FREEZE:
                await machine.freeze(seconds)
            case RealKind.REBOOT:
                with network.trouble(_around(fault.node), Trouble(silent=True)):
                    await machine.reboot(seconds)
            case RealKind.ROLE:
                return machine.fail_role(fault.number)
            case RealKind.CUT:
                return bool(network.cut(fault.node, fault.other))
            case RealKind.FULL_DISK:
                await machine.disk.fill(seconds)
            case RealKind.FULL_HOME:
                await self.cluster.file_servers[fault.node].fill(seconds)
            case RealKind.VACATE | RealKind.HOLD:
                return await self._ask(fault)
            case _ if kind in OF_PACKETS:
                with network.trouble(_directions(fault), self._trouble(kind)):
                    await asyncio.sleep(seconds)
            case RealKind.FORK_SERVER_DIES | RealKind.FORK_SERVER_HANGS:
                return await self._trouble_a_fork_server(fault, machine)
            case _:
                return await self._trouble_a_job(fault)
        return True

    def _trouble(self, kind: RealKind) -> Trouble:
        match kind:
            case RealKind.DELAY:
                late = self._chance.uniform(0.02, 1.5)
                return Trouble(delay=(late, late))
            case RealKind.JITTER:
                return Trouble(delay=(0.0, self._chance.uniform(0.01, 0.8)))
            case RealKind.LOSS:
                return Trouble(loss=self._chance.uniform(0.02, 0.5))
            case _:
                return Trouble(silent=True)

    async def _trouble_a_fork_server(self, fault: RealFault, machine: Machine) -> bool:
        pid = machine.fork_server()
        if pid is None:
            return False
        if fault.kind is RealKind.FORK_SERVER_HANGS:
            return await machine.hang(pid, fault.seconds)
        return bool(send([pid], signal.SIGKILL))

    async def _trouble_a_job(self, fault: RealFault) -> bool:
        """A job's process, or its keeper."""
        running = self._running(fault.node)
        if not running:
            return False
        machine, job, pid = running[fault.number % len(running)]
        if fault.kind is RealKind.JOB_DIES:
            job.killed = True
            return bool(send([pid], signal.SIGKILL))
        if fault.kind is RealKind.JOB_HANGS:
            return await machine.hang(pid, fault.seconds)
        keeper = machine.keeper_of(pid)
        if keeper is None or not machine.is_well:
            return False
        if fault.kind is RealKind.KEEPER_HANGS:
            return await machine.hang(keeper, fault.seconds, keeper=True)
        return bool(send([keeper], signal.SIGKILL))

    def _running(self, node: str) -> list[tuple[Machine, Submitted, int]]:
        """Processes of jobs on a machine; where it has none, on the others."""
        alive = [(job, copy.pid) for job in self.jobs for copy in self.cluster.reports.alive(job.label)]
        machines = [self.cluster.machines[name] for name in STARTDS]
        found = [(machine, job, pid) for machine in machines for job, pid in alive if machine.has(pid)]
        return [one for one in found if one[0].name == node] or found

    async def _ask(self, fault: RealFault) -> bool:
        """A user's request for all of his jobs or for some."""
        constraint = "true" if fault.number % 2 else f"ClusterId % 3 == {fault.number % 3}"
        action = "vacate" if fault.kind is RealKind.VACATE else "hold"
        try:
            done = await self._act(fault.node, action, constraint)
        except TROUBLE:
            return True  # it may have been done
        if action == "hold":
            await asyncio.sleep(min(fault.seconds, 3.0))
            with contextlib.suppress(*TROUBLE):
                await self._act(fault.node, "release", "true")
        return done

    async def _act(self, schedd: str, action: str, constraint: str) -> bool:
        async with self.cluster.user(schedd) as pool:
            return bool((await pool.act(action, constraint=constraint)).done)

    async def _calm_down(self) -> None:
        """All is well again; jobs that are held are released, until no job is left."""
        for machine in self.cluster.machines.values():
            await machine.ready()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for machine in self.cluster.machines.values():
                machine.go_on()
            if not sum([await self._release(name) for name in SCHEDDS]):
                return
            await asyncio.sleep(0.3)
        for machine in self.cluster.machines.values():
            machine.show_tasks()
        await asyncio.sleep(1.0)

    async def _release(self, schedd: str) -> int:
        """Release what is held; how many jobs there are, as far as is known."""
        with contextlib.suppress(*TROUBLE):
            async with self.cluster.user(schedd) as pool:
                ads = await pool.jobs()
                if any(ad.value("JobStatus") == HELD for ad in ads):
                    await pool.act("release", constraint=f"JobStatus == {HELD}")
                return len(ads)
        return 1

    async def _remove_what_is_left(self) -> None:
        """A job that did not end in this round is no part of the next one."""
        for name in SCHEDDS:
            with contextlib.suppress(*TROUBLE):
                async with self.cluster.user(name) as pool:
                    await pool.act("remove", constraint="true", force=True)


def _around(node: str) -> list[Direction]:
    others = [name for name in NODES if name != node]
    return [(node, other) for other in others] + [(other, node) for other in others]


def _directions(fault: RealFault) -> list[Direction]:
    if fault.kind is RealKind.SILENCE:
        return [(fault.node, fault.other), (fault.other, fault.node)]
    return [(fault.node, fault.other)] if fault.other else _around(fault.node)
