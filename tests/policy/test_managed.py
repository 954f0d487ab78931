"""Machines of dedicated schedulers: what the setting makes of the owner's expressions (WR 3.1)."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, parse_expr, rank, requirements_accept
from pool.policy.managed import (
    MOST,
    RANK,
    is_dedicated,
    managed,
    manager_attributes,
    marked,
    schedulers_of,
    submitter_of,
)
from pool.policy.owner import OwnerPolicy, decide, is_decided, preference, wire
from pool.policy.shipped import DEDICATED, DESKTOP, PolicyError
from pool.policy.slots import BUSY, CONDITIONS, OWNER, UNCLAIMED, SlotEvent
from tests.policy.test_owner import NOW, slot

HEAD = schedulers_of("head")
OURS = ClassAd({"Scheduler": "DedicatedScheduler@head", "Owner": "ada", "ImageSize": 5000})
OTHER = ClassAd({"Scheduler": "DedicatedScheduler@elsewhere", "Owner": "ada", "ImageSize": 5000})
PLAIN = ClassAd({"Owner": "ada", "ImageSize": 5000})
desktop = OwnerPolicy.from_shipped("desktop", {}, schedulers=HEAD)


def test_its_jobs_start_whatever_the_machine_is_doing() -> None:
    """W2: a key was touched a second ago and the load is 8."""
    busy = slot(UNCLAIMED, idle=1, load=8)
    busy.update_from_wire(wire(desktop))
    for job, starts in ((OURS, True), (OTHER, False), (PLAIN, False)):
        assert requirements_accept(busy, job, NOW) is starts
    quiet = slot(UNCLAIMED)
    quiet.update_from_wire(wire(desktop))
    assert requirements_accept(quiet, PLAIN, NOW), "other jobs have the owner's policy"


def test_a_busy_desktop_stays_offered_for_them() -> None:
    assert decide(desktop, slot(UNCLAIMED, idle=1, load=8), None, UNCLAIMED, NOW) is None
    assert decide(desktop, slot(OWNER, idle=1, load=8), None, OWNER, NOW) is SlotEvent.OWNER_LEAVES


def test_what_has_begun_stays_and_another_job_on_the_same_machine_makes_room() -> None:
    """W2."""
    touched = slot(BUSY, idle=1)
    assert decide(desktop, touched, OURS, BUSY, NOW) is None
    assert decide(desktop, touched, PLAIN, BUSY, NOW) is SlotEvent.SUSPEND
    assert decide(desktop, touched, OTHER, BUSY, NOW) is SlotEvent.SUSPEND


@pytest.mark.parametrize("rank", ["0.0", "TARGET.JobPrio", "TARGET.Nothing", "1e300", "TARGET.Worth * 1e200"])
def test_nothing_is_preferred_to_it(rank: str) -> None:
    """W3: a user who writes the greatest number there is has not more."""
    policy = OwnerPolicy.from_shipped("dedicated", {"RANK": rank}, schedulers=HEAD)
    greedy = ClassAd({"JobPrio": 2**62, "Worth": 1e100})
    ours, _ = preference(policy, slot(), OURS, NOW)
    assert ours == RANK
    for job in (greedy, PLAIN, OTHER):
        assert preference(policy, slot(), job, NOW)[0] <= MOST


def test_the_first_of_several_goes_before_the_second_and_that_before_the_rest() -> None:
    """W55."""
    policy = OwnerPolicy.from_shipped("desktop", {"RANK": "1"}, schedulers=schedulers_of("head, elsewhere"))
    ranks = [preference(policy, slot(), job, NOW)[0] for job in (OURS, OTHER, PLAIN)]
    assert ranks == [2 * RANK, RANK, 1.0]
    for job in (OURS, OTHER):
        assert decide(policy, slot(BUSY, idle=1), job, BUSY, NOW) is None
    assert manager_attributes(schedulers_of("head elsewhere")) == {
        "DedicatedScheduler": "DedicatedScheduler@head",
        "DedicatedSchedulers": "DedicatedScheduler@head, DedicatedScheduler@elsewhere",
    }


def test_a_policy_of_constants_stays_one() -> None:
    """Such a machine is not looked at every five seconds."""
    policy = OwnerPolicy.from_shipped("dedicated", {}, schedulers=HEAD)
    plain = OwnerPolicy.from_shipped("dedicated", {})
    assert [is_decided(policy, one) for one in CONDITIONS] == [is_decided(plain, one) for one in CONDITIONS]
    assert managed(DESKTOP, ()) == DESKTOP
    assert managed(DEDICATED, HEAD)["START"] == "true"


def test_only_its_jobs_start_where_the_owner_lets_no_others() -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"START": "false"}, schedulers=HEAD)
    assert decide(policy, slot(UNCLAIMED), None, UNCLAIMED, NOW) is None
    ad = slot(UNCLAIMED)
    ad.update_from_wire(wire(policy))
    assert [requirements_accept(ad, job, NOW) for job in (OURS, OTHER, PLAIN)] == [True, False, False]


def test_an_urgent_job_does_not_stop_its_jobs() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"START_URGENT": "true"}, schedulers=HEAD)
    held, lower = slot(BUSY), slot(BUSY)
    held["CurrentRank"], lower["CurrentRank"] = RANK, 5.0
    assert policy.value("START_URGENT", held, PLAIN, NOW) is False
    assert policy.value("START_URGENT", lower, PLAIN, NOW) is True


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("head", ("DedicatedScheduler@head",)),
        ("DedicatedScheduler@head.example.org", ("DedicatedScheduler@head.example.org",)),
        ('"DedicatedScheduler@head", b', ("DedicatedScheduler@head", "DedicatedScheduler@b")),
    ],
)
def test_names_are_written_short_or_as_htcondor_writes_them(text: str, found: tuple[str, ...]) -> None:
    assert schedulers_of(text) == found


@pytest.mark.parametrize("text", ["alice@head", "head, head", "a/b", "@head", " ".join(f"n{n}" for n in range(17))])
def test_what_is_no_name_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(PolicyError) as refused:
        schedulers_of(text)
    assert refused.value.hint


def test_no_request_says_for_itself_whose_it_is() -> None:
    lie = {"scheduler": "DedicatedScheduler@head", "Owner": "eve"}
    assert marked(lie, "eve@evil") == {"Owner": "eve"}
    assert marked(lie, "DedicatedScheduler@evil") == {"Owner": "eve", "Scheduler": "DedicatedScheduler@evil"}
    assert marked(lie, submitter_of("head"), dedicated=False) == {"Owner": "eve"}
    assert not is_dedicated("eve@DedicatedScheduler@head")


def test_a_rank_that_is_another_one_each_time_stays_below_the_schedulers() -> None:
    """A job's attribute may have random(): its second value counted, and the first was within the bound."""
    likes = OwnerPolicy.from_shipped("dedicated", {"RANK": "TARGET.Wish"}, schedulers=HEAD)
    machine = slot(UNCLAIMED)
    machine.update_from_wire(wire(likes))
    for limit in range(1, 20):
        wish = f"random() > {limit / 20} ? 0 : 1e20"
        assert rank(machine, ClassAd({"Wish": parse_expr(wish)}), NOW) <= MOST, wish
    for wish, counts in (("7.5", 7.5), ("-3", -3.0), ("true", 1.0), ("1e30", MOST), ('"x"', 0.0), ("undefined", 0.0)):
        assert rank(machine, ClassAd({"Wish": parse_expr(wish)}), NOW) == counts, wish
    assert rank(machine, OURS, NOW) == RANK
