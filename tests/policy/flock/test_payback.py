"""Jobs of a creditor come ahead of own ones up to the balance, and not a second more."""

from __future__ import annotations

import math
import random

import pytest

from pool.policy.flock.payback import LEAST, lasts, slots_ahead
from pool.policy.priorities import CreditorsFirst, CycleSubmitter, FairShare, SubmitterAccount
from tests.policy.negotiation.support import negotiate, request, slot


@pytest.mark.parametrize("seed", range(100))
def test_exactly_what_is_owed_is_paid_back(seed: int) -> None:
    """By chance jobs of a creditor begin and end; all that is ahead ends when nothing is owed any more."""
    chance = random.Random(seed)
    owed = lent = chance.uniform(0, 20_000)
    held: list[float] = []
    given = 0.0
    for _ in range(10_000):
        value = chance.choice([0.5, 1.0, 4.0])
        for _ in range(min(slots_ahead(owed, sum(held), value), chance.randint(0, 3))):
            held.append(value)
            assert lasts(owed, sum(held)) >= LEAST - 1e-6, "no machine is given for a moment only"
        if not held:
            if slots_ahead(owed, 0.0, 4.0) == 0:
                break
            continue
        step = min(chance.expovariate(1 / 300), lasts(owed, sum(held)))
        given += step * sum(held)
        owed -= step * sum(held)
        if lasts(owed, sum(held)) == 0.0:
            held.clear()
        elif chance.random() < 0.5:
            held.pop(chance.randrange(len(held)))
    assert given <= lent + 1e-3
    assert owed <= 4.0 * LEAST + 1e-3


def test_nothing_owed_is_nothing_ahead() -> None:
    assert slots_ahead(0.0, 0.0) == slots_ahead(-100.0, 0.0) == slots_ahead(LEAST - 1, 0.0) == 0
    assert slots_ahead(LEAST, 0.0) == 1
    assert lasts(0.0, 1.0) == lasts(-5.0, 1.0) == 0.0
    assert lasts(10.0, 0.0) == math.inf


@pytest.mark.parametrize("seed", range(20))
def test_creditors_are_served_first_whatever_their_priority(seed: int) -> None:
    """The part of a creditor's requests that comes ahead is served before all others."""
    chance = random.Random(seed)
    machines, ahead, own = (chance.randint(1, 9) for _ in range(3))
    creditor = "ann@chem@head"
    poor, rich = SubmitterAccount("ann@chem", real=1e6), SubmitterAccount("bob", real=0.5)
    turns = CreditorsFirst(
        [creditor],
        FairShare().turns([CycleSubmitter(creditor, poor, held=5.0), CycleSubmitter("bob@head", rich)], machines),
    )
    asked = {creditor: [request(1, ahead)], "bob@head": [request(2, own)]}
    outcome = negotiate(asked, [slot(f"slot{number}") for number in range(machines)], turns=turns)
    found = {name: sum(one.count for one in outcome.matches if one.submitter == name) for name in asked}
    assert found[creditor] == min(machines, ahead)
    assert found["bob@head"] == min(own, machines - min(machines, ahead))
