"""A gang's whole life with a node killed at each call of it (kill -9), on the virtual clock.

There are four ways to kill: the submit machine or one of the gang's, before the call or after it. Each call of the life
has one of them here; `TESTS_ALL_KILLS=1` has all four at each (50 s).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from pool.testing.faults import TrapPhase
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, pause, play

#: Calls that say nothing of a gang's life, and that others make all the time.
OTHERS = ("node.", "collector.", "negotiator.")


async def life(at: DedicatedStory) -> None:
    """Gathered, started, saved while it runs, vacated, started again, ended."""
    at.seconds["*"] = 20.0
    await at.pool.submit("head", ad=parallel(2))
    for action in ("checkpoint", "vacate"):
        await pause(6.0)
        if at.pool.nodes["head"].running:
            await at.pool.act("head", "alice", action=action, ids=[[1]])


def steps(directory: Path) -> list[tuple[str, int]]:
    """The calls of a life in which nobody is killed: each method, as often as it is called."""
    found: list[tuple[str, int]] = []

    async def story(at: DedicatedStory) -> None:
        await life(at)
        await at.done(1, 600.0)
        calls = at.pool.traps.called
        found.extend((name, count) for name, most in calls.items() for count in range(1, most + 1))

    play(story, directory=directory, stateful=True)
    return [(name, count) for name, count in found if not name.startswith(OTHERS)]


WAYS = [(victim, phase) for victim in ("head", "m0") for phase in TrapPhase]


@pytest.mark.parametrize(("victim", "phase"), WAYS)
def test_a_node_is_killed_at_each_call_of_a_gangs_life(victim: str, phase: TrapPhase, tmp_path: Path) -> None:
    """The job ends once, nothing of it ever runs twice, and every machine is free or claimed for the next job."""
    calls = steps(tmp_path)
    assert len(calls) > 30
    each = 1 if os.environ.get("TESTS_ALL_KILLS") else len(WAYS)
    for method, count in calls[WAYS.index((victim, phase)) % each :: each]:

        async def story(at: DedicatedStory, method: str = method, count: int = count) -> None:
            trap = at.pool.trap(method, phase, victim, count=count)
            living = asyncio.create_task(life(at))
            for _ in range(400):
                await pause(2.0)
                if not at.pool.nodes[victim].running:
                    await pause(3.0)
                    await at.pool.restart(victim)
                elif living.done() and at.pool.queued("head") == 0:
                    break
            await asyncio.gather(living, return_exceptions=True)
            where = f"{method} {count} {phase} {victim} {trap.sprung}"
            assert at.pool.queued("head") == 0, where
            at.pool.assert_sound()
            assert not at.running(), where
            ended = [ad for ad in await at.pool.ended("head") if ad["ClusterId"] == 1]
            assert len(ended) <= 1, where  # a submit that was cut off may have queued nothing
            trap.sprung = True
            at.seconds["*"] = 1.0
            await at.pool.submit("head", ad=parallel(2))
            await at.pool.run_until(lambda: at.pool.queued("head") == 0, 200.0)

        try:
            play(story, directory=tmp_path, stateful=True)
        except BaseException as error:
            raise AssertionError(f"{method} {count} {phase} {victim}") from error
