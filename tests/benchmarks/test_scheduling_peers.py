"""The peers of the dedicated scheduler: by hand, and against it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pool.policy.dedicated import WRIGHT, Backfill, DedicatedSettings
from pool.testing.dedicated import Durations, Simulation, TraceJob, lublin, scaled
from tests.benchmarks.scheduling_peers import Rule, conservative, easy, fcfs, peer


def test_by_hand() -> None:
    jobs = [TraceJob(0, 0, 100, 3), TraceJob(1, 10, 50, 2), TraceJob(2, 20, 10, 1)]
    assert peer(jobs, 4, fcfs).wait == pytest.approx((0 + 90 + 80) / 3)
    assert peer(jobs, 4, easy).wait == pytest.approx((0 + 90 + 0) / 3)
    assert peer(jobs, 4, conservative).wait == pytest.approx((0 + 90 + 0) / 3)


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (fcfs, WRIGHT),
        (easy, replace(WRIGHT, backfill=Backfill.EASY)),
        (conservative, replace(WRIGHT, backfill=Backfill.CONSERVATIVE)),
    ],
)
def test_the_discipline_decides_as_the_literature_does(rule: Rule, settings: DedicatedSettings) -> None:
    """Two programs that share no code come to the same waits."""
    jobs = scaled(lublin(random.Random(7), 600, 64), 64, 0.85)
    ours = Simulation(jobs, 64, settings, durations=Durations.PERFECT).run()
    theirs = peer(jobs, 64, rule)
    assert ours.wait == pytest.approx(theirs.wait, rel=0.01)
    assert ours.slowdown == pytest.approx(theirs.slowdown, rel=0.01)
    assert ours.utilisation == pytest.approx(theirs.utilisation, rel=0.001)
