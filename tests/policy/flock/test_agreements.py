"""The flock's file: rights between pools, and each mistake in it named (EV 5.3)."""

from __future__ import annotations

import pytest

from pool.policy.flock.agreements import BadAgreement, FlockAgreement, limits_shown, read_agreements, rule_changes
from pool.policy.flock.ledger import CreditTerms


def test_a_pool_has_the_rights_that_the_file_says() -> None:
    found = read_agreements('[physics]\nin = false\nmachines = 20\n[math]\nusers = ["ada"]\n')
    assert found["physics"] == FlockAgreement("physics", lets_in=False, machines=20)
    assert found["math"].admits("ada")
    assert not found["math"].admits("bob")
    assert not found["physics"].admits("ada"), "nobody, where the pool's jobs may not run here"


def test_the_file_may_say_whether_guests_leave() -> None:
    found = read_agreements("[physics]\nguests_leave = false\n[math]\nguests_leave = true\n[bio]\n")
    assert [found[pool].guests_leave for pool in ("physics", "math", "bio")] == [False, True, None]


def test_an_agreement_with_credit_has_a_bound_and_a_half_life() -> None:
    found = read_agreements('[physics]\nagreement = "credit"\nbound = 2\nhalf_life = 1\n[math]\nin = true\n')
    assert found["physics"].terms == CreditTerms(True, 7200.0, 86400.0)
    assert found["math"].terms is None, "as invited and accepted"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("physics = 3", "stands outside a pool"),
        ("[physics]\nwhat = 1", "has no setting what"),
        ('[physics]\nin = "yes"', "in of [physics] is not true or false"),
        ("[physics]\nin = 1", "in of [physics] is not true or false"),
        ("[physics]\nmachines = true", "is not a number of slots"),
        ('[physics]\nguests_leave = "never"', "guests_leave of [physics] is not true or false"),
        ("[physics]\nguests_leave = 0", "guests_leave of [physics] is not true or false"),
        ("[physics]\nmachines = -1", "is negative"),
        ('[physics]\nagreement = "gift"', "agreement of [physics] is not 'credit' or 'idle-only'"),
        ('[physics]\nagreement = "credit"\nbound = -1', "bound of [physics] is negative"),
        ('[physics]\nagreement = "credit"\nbound = inf', "bound of [physics] is too large"),
        ('[physics]\nagreement = "credit"\nhalf_life = true', "is not a number of days"),
        ("[physics]\nusers = [1]", "is not a list of user names"),
        ("[physics]\nusers = ['alice@physics']", "users of [physics] has alice@physics"),
        ("[physics]\nhours = 18", "hours of [physics] is not a span of time"),
        ("[physics]\nhours = [18]", "hours of [physics] is not a span of time"),
        ("[physics]\nhours = 'soon'", "[physics]: hours has 'soon'"),
        ("[physics]\nkinds = 'Memory >'", "[physics]: kinds is no expression"),
        ("[physics", "cannot be read"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(BadAgreement) as error:
        read_agreements(text)
    assert words in str(error.value)


def test_limits_are_told_as_they_are_written() -> None:
    text = "[physics]\nmachines = 0\nusers = []\nhours = '18:00-08:00'\nkinds = 'Memory < 10'\n[math]\n"
    found = read_agreements(text)
    assert limits_shown(found["physics"]) == {
        **{"machines": 0, "users": [], "hours": ["18:00-08:00"], "kinds": "Memory < 10", "shows_status": False}
    }
    nothing: dict[str, object] = {"machines": None, "users": None, "hours": [], "kinds": "", "shows_status": False}
    assert limits_shown(found["math"]) == nothing


def test_what_differs_between_two_files_is_told_by_setting() -> None:
    assert rule_changes("", "") == []
    before = "[physics]\nmachines = 2\nin = true\n[math]\nstatus = true\n"
    after = '[physics]\nmachines = 3\nin = true\nusers = ["bob"]\n'
    assert rule_changes(before, after) == [
        ("[math] status", "true", ""),
        ("[physics] machines", "2", "3"),
        ("[physics] users", "", '["bob"]'),
    ]
