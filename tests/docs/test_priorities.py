"""docs/priorities.md: its numbers are the program's."""

from __future__ import annotations

import re

import pytest

from pool.config import Settings
from pool.policy.priorities import (
    AccountUsage,
    CycleSubmitter,
    FairShare,
    LeastTurns,
    SubmitterAccount,
    UpDown,
    allot,
    read_quotas,
)
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "priorities.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its own heading."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def shipped(name: str) -> float:
    return Settings.load(None, sets={}, environ={}, files=False).number(name)


def test_up_down() -> None:
    policy = UpDown()
    heavy, light, gone = SubmitterAccount("heavy"), SubmitterAccount("light"), SubmitterAccount("gone", index=-2.0)
    for place, row in enumerate(table("Up-down")):
        assert row == [f"{place * 300} s", *(f"{account.index:g}" for account in (heavy, light, gone))]
        policy.advance(heavy, AccountUsage(users=1, running=8, jobs=8), shipped("PRIORITY_INTERVAL"))
        policy.advance(light, AccountUsage(users=1), shipped("PRIORITY_INTERVAL"))
        policy.advance(gone, AccountUsage(), shipped("PRIORITY_INTERVAL"))


def test_fair_share() -> None:
    policy = FairShare(shipped("PRIORITY_HALF_LIFE"), shipped("PRIORITY_FACTOR"))
    heavy = SubmitterAccount("heavy")
    for place, (after, real, effective) in enumerate(table("Fair share")):
        if place:
            held = 0 if "without jobs" in after else 8
            policy.advance(heavy, AccountUsage(users=1, running=held, jobs=held), 86400.0)
        assert after.startswith(f"{place} d")
        assert real == f"{heavy.real:.2f}"
        assert effective == f"{policy.effective(heavy):.0f}"


def test_shares_by_priority() -> None:
    sentence = r"Of (\d+) slots for which Ann \((\d+)\) and Bob \((\d+)\).* Ann is given (\d+) and Bob (\d+)"
    found = re.search(sentence, PAGE)
    assert found is not None
    slots, ann, bob, to_ann, to_bob = map(int, found.groups())
    prices = {"ann": ann, "bob": bob}
    turns = LeastTurns(((CycleSubmitter(name, SubmitterAccount(name)), price) for name, price in prices.items()), slots)
    given = dict.fromkeys(prices, 0)
    for _ in range(slots):
        turn = turns.next()
        assert turn is not None
        given[turn[0]] += 1
        turns.charge(turn[0], 1.0)
    assert given == {"ann": to_ann, "bob": to_bob}


@pytest.mark.parametrize("row", table("Groups"))
def test_quotas(row: list[str]) -> None:
    quotas, numbers = row[0], [float(cell) for cell in row[1:]]
    names = ("physics", "chemistry", "")
    given = allot(read_quotas(quotas), dict(zip(names, numbers[:3], strict=True)), 100.0)
    assert [round(given[name], 1) for name in names] == numbers[3:]


def test_what_is_shipped_is_what_the_page_says() -> None:
    settings = Settings.load(None, sets={}, environ={}, files=False)
    assert "`updown` (shipped)" in PAGE
    assert settings.text("PRIORITY_POLICY") == "updown"
    assert settings.text("UPDATE_PRIO") == "Prio + Users - Running"
    assert settings.text("PREEMPTION_REQUIREMENTS") == "false"
    assert (shipped("PRIORITY_INTERVAL"), shipped("PRIORITY_HALF_LIFE"), shipped("CLAIM_LIFE")) == (300, 86400, 1200)
