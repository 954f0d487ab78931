"""The experiment behind the up-down algorithm, small: light users do not wait for the length of a heavy one's queue."""

from __future__ import annotations

import pytest

from tests.benchmarks.fairness import MOST_GROWTH, Experiment, first_come_first_served, simulated

SMALL = Experiment(slots=3, warm=150.0, lasts=600.0, pause=90.0)


@pytest.mark.parametrize("policy", ["updown", "fairshare"])
def test_the_light_users_wait_does_not_grow_with_the_heavy_ones_queue(policy: str) -> None:
    beside_little, beside_much = (simulated(SMALL, policy, load) for load in (2, 20))
    assert len(beside_much.all) == sum(jobs for _, jobs in SMALL.arrivals()) > 10
    assert beside_much.mean <= MOST_GROWTH * beside_little.mean
    assert beside_much.most <= MOST_GROWTH * beside_little.most


def test_first_come_first_served_makes_them_wait_for_all_of_it() -> None:
    means = [first_come_first_served(SMALL, load).mean for load in (1, 2, 5, 20)]
    assert means == sorted(means)
    # Twenty times the pool's capacity before you is about twenty jobs one after the other.
    assert means[-1] == pytest.approx(19 * (SMALL.shortest + SMALL.longest) / 2, rel=0.25)


def test_the_experiment_is_the_same_each_time() -> None:
    assert simulated(SMALL, "updown", 2) == simulated(SMALL, "updown", 2)
