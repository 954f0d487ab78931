"""Which jobs of other pools leave our machines for our own jobs, by their ads (EV 4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from pool.policy.flock.guests import guest_facts, is_guest
from pool.policy.flock.private import users_order, users_request
from pool.policy.flock.shown import guest_order, guest_request, lent_machine


@pytest.mark.parametrize(
    ("ahead", "stays", "leaves"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, False)],
)
def test_a_guest_leaves_that_came_after_own_jobs_and_is_not_to_stay(ahead: bool, stays: bool, leaves: bool) -> None:
    request = guest_request({"Cmd": "fit"}, "ann", "physics", ahead=ahead, stays=stays)
    assert guest_facts(request) == {"RemoteGuestOf": "physics", "RemoteGuestLeaves": leaves}
    order = guest_order({"shared": {"Owner": "ann"}, "own": {}}, "physics", ahead=ahead, stays=stays)
    assert guest_facts({**order["shared"], **order["own"]}) == guest_facts(request)


@pytest.mark.parametrize("name", ["FlockGuestStays", "flockgueststays", "FLOCKGUESTSTAYS"])
def test_a_guest_does_not_say_itself_that_it_stays(name: str) -> None:
    request = guest_request({name: True}, "ann", "physics")
    assert guest_facts(request)["RemoteGuestLeaves"] is True
    assert sum(one.lower() == "flockgueststays" for one in request) == 1
    order = guest_order({"own": {name: True}}, "physics")
    assert guest_facts(order["own"])["RemoteGuestLeaves"] is True


def test_a_job_that_follows_on_the_claim_has_the_terms_of_its_own_start() -> None:
    """An order says only what is different from the one before: the terms are always in it."""
    before = guest_order({"shared": {"Owner": "ann"}, "own": {}}, "physics", stays=True)
    after = guest_order({"own": {"ProcId": 1}}, "physics")
    assert guest_facts({**before["shared"], **before["own"], **after["own"]})["RemoteGuestLeaves"] is True


def test_own_jobs_are_no_guests() -> None:
    own: dict[str, Any] = {"Owner": "bob", "NiceUser": True}
    elsewhere = users_request({"Cmd": "fit"}, "carol", "bio", "chem", "lab")
    order = users_order({"own": {}}, "carol", "bio", "lab")["own"]
    assert [guest_facts(one) for one in (own, elsewhere, order)] == [{}, {}, {}]
    assert not any(is_guest(one) for one in (own, elsewhere, order, {"FlockGuestOf": 3}))


def test_a_lent_machine_says_nothing_of_guests() -> None:
    ad = lent_machine(
        {"RemoteGuestOf": "us", "remoteguestleaves": True, "State": "Claimed"}, "s@m", "chem", "tcp://h:1"
    )
    assert not {"remoteguestof", "remoteguestleaves"} & {name.lower() for name in ad}
