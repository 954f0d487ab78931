"""Commands on a parallel job at each moment of its life, in simulated pools: nothing of it stays behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from pool.jobs.events import EventKind
from pool.jobs.states import JobStatus
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.schedd.parallel.test_parallel_jobs import heard, node_of, parallel
from tests.roles.support import QUICK

NODES, LENGTH, SAVING = 3, 330.0, 2.0
SETTINGS = {**QUICK, "GANG_PATIENCE": "30", "CHECKPOINT_FIRST": "100"}
WANTED_BACK = {"PREEMPT": "LoadAvg > 2", "START": "LoadAvg < 1"}
COMMANDS = ["remove", "remove at once", "remove saved", "hold", "vacate", "vacate at once", "checkpoint", "release"]
#: Moments before or after a call is served, and the number of the call.
CALLS = {
    "claiming": ("startd.claim", TrapPhase.BEFORE, 1),
    "claimed": ("startd.claim", TrapPhase.AFTER, 2),
    "first start on its way": ("startd.activate", TrapPhase.BEFORE, 1),
    "last start on its way": ("startd.activate", TrapPhase.AFTER, 3),
    "first at the meeting": ("schedd.wait_for_parts", TrapPhase.BEFORE, 1),
    "second at the meeting": ("schedd.wait_for_parts", TrapPhase.BEFORE, 2),
    "last at the meeting": ("schedd.wait_for_parts", TrapPhase.BEFORE, 3),
    "holding for a checkpoint": ("startd.checkpoint_part", TrapPhase.BEFORE, 1),
    "freezing for a checkpoint": ("startd.checkpoint_part", TrapPhase.AFTER, 4),
    "going after a checkpoint": ("startd.checkpoint_part", TrapPhase.AFTER, 7),
    "leaving": ("startd.checkpoint_part", TrapPhase.BEFORE, 2),
    "leaving frozen": ("startd.checkpoint_part", TrapPhase.AFTER, 5),
    "first end": ("schedd.ended", TrapPhase.BEFORE, 1),
    "first end told": ("schedd.ended", TrapPhase.AFTER, 1),
    "last end": ("schedd.ended", TrapPhase.BEFORE, 3),
}
MOMENTS = ["idle", "gathering", "running", "held", *CALLS]


class Life:
    """One parallel job of three nodes, and the command that comes at one moment of its life."""

    def __init__(self, pool: SimPool, moment: str, command: str) -> None:
        self.pool, self.moment, self.command = pool, moment, command
        self.answer: asyncio.Task[dict[str, Any]] | None = None
        self.events = heard(pool)

    @property
    def schedd(self) -> Any:
        return self.pool.role("head", "schedd")

    @property
    def job(self) -> Any:
        return next(iter(self.schedd.queue.jobs()))

    async def machines(self, first: int, number: int) -> None:
        def behave(spec: KeeperSpec) -> Behaviour:
            return Behaviour(LENGTH + 10.0 * node_of(spec), saving=SAVING)

        for index in range(first, number):
            await self.pool.add(f"m{index}", "startd", behave=behave)

    def act(self, action: str, **more: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        return self.pool.act("head", "alice", action=action, ids=[[1, 0]], **more)

    async def ask(self) -> None:
        action, _, how = self.command.partition(" ")
        more = {"at once": {"force": True}, "saved": {"checkpoint": True}}.get(how, {})
        self.answer = asyncio.get_running_loop().create_task(self.act(action, **more))

    async def reach(self) -> None:
        """Bring the job to the moment, and give the command there."""
        pool, call = self.pool, CALLS.get(self.moment)
        trap = pool.run_at(call[0], call[1], self.ask, count=call[2]) if call else None
        await self.machines(0, {"idle": 0, "held": 0, "gathering": 2}.get(self.moment, NODES))
        await pool.submit("head", ad=parallel(NODES, ParallelShutdownPolicy="WAIT_FOR_ALL"))
        if self.moment == "held":
            await self.act("hold")
        elif self.moment == "gathering":
            await pool.run_until(lambda: len(self.schedd.placement.claims) == 2, 100.0)
        elif self.moment == "running":
            await pool.run_until(lambda: len(pool.witness.running) == NODES, 100.0)
            await asyncio.sleep(20.0)
        elif self.moment.startswith("leaving"):
            await pool.run_until(lambda: len(pool.witness.running) == NODES, 100.0)
            await asyncio.sleep(20.0)
            pool.nodes["m1"].sensors.owners_load = 3.0
        if trap is None:
            await self.ask()
        else:
            await pool.run_until(lambda: trap.sprung, 1000.0)
        assert self.answer is not None
        await asyncio.wait([self.answer])

    def nothing_left(self) -> None:
        """No claim, no node of the job, and nothing remembered of it."""
        assert not self.pool.witness.running
        assert not self.schedd.placement.claims
        for name, node in self.pool.nodes.items():
            if name != "head":
                assert {slot.claim for slot in self.pool.role(name, "startd").slots.values()} == {None}, name
                assert not [one for one in node.machine.keepers.values() if not one.ended.done()], name
        gangs = self.schedd.placement.gangs
        gathering = gangs.gathering
        assert not any((gangs._running, gathering._held, gathering._offers, gathering._waits))
        self.pool.assert_sound()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_command_at_each_moment(moment: str, command: str) -> None:
    async def work() -> None:
        settings = {**SETTINGS, **WANTED_BACK} | ({"CHECKPOINT_FIRST": "0"} if moment.startswith("leaving") else {})
        async with SimPool(7, settings=settings, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            life = Life(pool, moment, command)
            await life.reach()
            assert life.answer is not None
            answer = life.answer.result()
            done = answer["done"] == 1
            over = moment == "last end" and not done
            removed = command.startswith("remove") and done
            if command == "release":
                assert done is (moment == "held")
            elif command.startswith("remove"):
                assert done or over
            elif command == "hold":
                assert done is (moment != "held") or over
            if command == "hold" and not over:
                await pool.run_until(lambda: not pool.queued("head") or life.job.status == JobStatus.HELD, 300.0)
            elif removed:
                await pool.run_until(lambda: pool.queued("head") == 0, 300.0)
            held = pool.queued("head") and life.job.status == JobStatus.HELD
            if held:
                await asyncio.sleep(200.0)
                life.nothing_left()
                assert (await life.act("release"))["done"] == 1
            await life.machines(len(pool.nodes) - 1, NODES)
            for name in ("m0", "m1", "m2"):
                pool.nodes[name].sensors.owners_load = 0.0
            await pool.run_until(lambda: pool.queued("head") == 0, 5000.0)
            await asyncio.sleep(100.0)
            life.nothing_left()
            (ad,) = await pool.ended("head")
            kinds = [event.kind for event in life.events]
            number = Counter(kinds)
            if removed and ad["JobStatus"] == JobStatus.REMOVED:
                assert (kinds[-1], number[EventKind.ABORTED], number[EventKind.TERMINATED]) == (EventKind.ABORTED, 1, 0)
            else:
                assert (ad["JobStatus"], ad["ExitCode"]) == (JobStatus.COMPLETED, 0)
                if moment == "running":
                    assert ad["NumJobStarts"] == (2 if command.startswith(("vacate", "hold")) else 1)
                assert (kinds[-1], number[EventKind.TERMINATED], number[EventKind.ABORTED]) == (
                    EventKind.TERMINATED,
                    1,
                    0,
                )
            assert number[EventKind.HELD] == number[EventKind.RELEASED] == (1 if held or moment == "held" else 0) or (
                moment == "held" and removed
            )

    run_virtual(work())
