"""How long dedicated jobs will run: as users say, as they may at most, as the last runs of their size (WR 6.3)."""

from __future__ import annotations

import pytest

from pool.jobs.description.expressions import wire_of
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, play, serial


def head_starts_after(at: DedicatedStory, job: str) -> float:
    """Seconds from the start of a running job until the head is expected to start."""
    (wait,) = at.scheduler.decisions.waits
    (run,) = [one for one in at.scheduler.state.running if one.job.id == job]
    return float(wait.expected - run.started)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({"AllowedJobDuration": 300}, 300.0),
        ({"AllowedExecuteDuration": wire_of("200 + 200")}, 400.0),
        ({"ExpectedDuration": 100, "AllowedJobDuration": 300}, 100.0),
        ({"ExpectedDuration": 900, "AllowedJobDuration": 300}, 300.0),
        ({"ExpectedDuration": -900, "AllowedJobDuration": 300}, 300.0),
    ],
)
def test_a_plan_expects_no_run_longer_than_it_may_be(says: dict[str, object], expected: float) -> None:
    async def story(at: DedicatedStory) -> None:
        await at.claim_all(2)
        at.seconds["2.0"] = 50.0
        await at.pool.submit("head", owner="carol", ad=serial(**says))
        await at.runs("2.0")
        await at.pool.submit("head", owner="bob", ad=parallel(2))
        await at.pool.run_until(lambda: bool(at.scheduler.decisions.waits), 20.0)
        assert head_starts_after(at, "2.0") == pytest.approx(expected, abs=2.0)
        await at.done(3)

    play(story)


def test_runs_of_the_same_number_of_machines_count_first() -> None:
    """The user's last two runs were on one machine; the job on both is expected to take as long as that before it."""

    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 400.0, "2.0": 20.0, "3.0": 20.0, "4.0": 300.0, "5.0": 20.0}
        for size in (2, 1, 1):
            await at.pool.submit("head", ad=parallel(size))
            await at.pool.run_until(lambda: not at.pool.queued("head"), 1000.0)
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("4.0")
        await at.pool.submit("head", owner="bob", ad=parallel(2))
        await at.pool.run_until(lambda: bool(at.scheduler.decisions.waits), 20.0)
        assert head_starts_after(at, "4.0") == pytest.approx(400.0, abs=2.0)

    play(story)
