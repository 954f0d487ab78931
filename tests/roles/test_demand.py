"""`Demand` in submitters' ads: a number that grows, and that no restart repeats."""

from __future__ import annotations

import random

from pool.roles.advertise import DemandCount


def test_demand_counts_from_a_number_of_its_own() -> None:
    count, after_a_restart = DemandCount(random.Random(1)), DemandCount(random.Random(2))
    nothing = count.of("alice@home")
    count.grows("alice@home")
    assert count.of("alice@home") == nothing + 1
    assert count.of("bob@home") == nothing
    after_a_restart.grows("alice@home")
    assert after_a_restart.of("alice@home") != count.of("alice@home")
    count.forget("alice@home")
    assert count.of("alice@home") == nothing
