"""The machines of this pool that jobs of other pools leave for its own jobs (EV 4.2)."""

from __future__ import annotations

import pytest

from pool.classad import parse_expr
from pool.policy.negotiation import NegotiationTerms, Preempts, ResourceRequest
from tests.policy.negotiation.support import NOW, Slot, claimed, kept_of, negotiate, request, slot

MINIMUM = 300.0
TERMS = NegotiationTerms(guest_minimum=MINIMUM, pre_job_rank=parse_expr("FlockPool =?= undefined"))
Taken = list[tuple[str, Preempts | None]]


def guest(name: str, *, since: float = NOW - 7200, saved: bool = True, leaves: bool = True, **ad: object) -> Slot:
    """A slot that a job of physics has had for some time."""
    own: dict[str, object] = {
        "RemoteNiceUser": True,
        "RemoteGuestOf": "physics",
        "RemoteGuestLeaves": leaves,
        "ClaimStart": int(since),
        "JobCanCheckpoint": saved,
        "LastPeriodicCheckpoint": int(since),
    }
    return claimed(name, "ann@physics@head", since=since, **(own | ad))


def lent(name: str, **ad: object) -> Slot:
    """An idle machine of another pool."""
    return slot(name, FlockPool="chem", **ad)  # type: ignore[arg-type]


def taken(
    slots: list[Slot], wanted: ResourceRequest | None = None, terms: NegotiationTerms = TERMS, user: str = "bob"
) -> Taken:
    outcome = negotiate({user: [wanted or request(1, 1)]}, slots, terms=terms)
    return [(match.slot, match.preempts) for match in outcome.matches]


def test_an_own_job_takes_a_guests_machine() -> None:
    assert taken([guest("s")]) == [("s", "guest")]


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_each_job_that_waits_takes_one_machine_and_no_more(jobs: int) -> None:
    slots = [guest(f"g{number}") for number in range(5)]
    assert len(taken(slots, request(1, jobs))) == jobs


def test_idle_machines_of_this_pool_come_first_whatever_the_job_prefers() -> None:
    slots = [guest("fast", Mips=9), slot("slow", Mips=1), guest("faster", Mips=10)]
    wanted = request(1, 2, Rank=["TARGET.Mips"])
    assert taken(slots, wanted) == [("slow", None), ("faster", "guest")]


def test_a_guest_leaves_before_a_job_is_sent_to_another_pool() -> None:
    """A machine of this pool is for its own jobs; the administrator may have idle ones of all pools first."""
    slots = [lent("away"), guest("g")]
    assert taken(slots, request(1, 2)) == [("g", "guest"), ("away", None)]
    anywhere = NegotiationTerms(guest_minimum=MINIMUM)
    assert taken(slots, request(1, 2), anywhere) == [("away", None), ("g", "guest")]


def test_a_guest_leaves_before_a_job_of_this_pool_does() -> None:
    terms = NegotiationTerms(preemption_requirements=True, priorities={"bob": 1.0, "carl": 9.0})
    slots = [claimed("own", "carl"), guest("g"), claimed("liked", "carl", Rank=5.0)]
    assert taken(slots, request(1, 3), terms) == [("g", "guest"), ("liked", "rank"), ("own", "priority")]


def test_the_guest_leaves_that_loses_the_least() -> None:
    slots = [
        guest("long", saved=False, since=NOW - 9000),
        guest("short", saved=False, since=NOW - 600),
        guest("unsaved", since=NOW - 9000, LastPeriodicCheckpoint=int(NOW - 8000)),
        guest("saved", since=NOW - 9000, LastPeriodicCheckpoint=int(NOW - 10)),
    ]
    assert [name for name, _ in taken(slots, request(1, 4))] == ["saved", "unsaved", "short", "long"]


def test_a_guest_that_cannot_be_saved_has_its_minimum_first() -> None:
    young = guest("young", saved=False, since=NOW - MINIMUM + 40)
    assert taken([young]) == []
    assert taken([guest("old", saved=False, since=NOW - MINIMUM)]) == [("old", "guest")]
    assert taken([guest("saved", since=NOW - 1)]) == [("saved", "guest")]
    outcome = negotiate({"bob": [request(1, 1)]}, [young], terms=TERMS)
    assert outcome.guests_leave_at == NOW + 40, "then there is another cycle"


def test_the_minimum_is_of_the_claim_and_not_of_each_of_its_jobs() -> None:
    """Else a guest with short jobs would keep the machine for as long as the claim lives."""
    assert taken([guest("s", saved=False, JobStart=int(NOW - 5))]) == [("s", "guest")]


def test_a_claim_between_two_jobs_has_nothing_to_lose() -> None:
    idle = guest("s", saved=False, since=NOW - 1, Activity="Idle", JobStart=None)
    assert taken([idle]) == [("s", "guest")]


def test_no_cycle_is_due_where_no_job_waits_for_a_young_guest() -> None:
    young = guest("young", saved=False, since=NOW - 10)
    enough = negotiate({"bob": [request(1, 1)]}, [young, slot("idle")], terms=TERMS)
    unfit = negotiate({"bob": [request(1, 1, RequestMemory=9999)]}, [young], terms=TERMS)
    guests_own = negotiate({"eve@physics@head": [request(1, 1, FlockGuestOf="physics")]}, [young], terms=TERMS)
    assert [found.guests_leave_at for found in (enough, unfit, guests_own)] == [None, None, None]


@pytest.mark.parametrize(
    ("ad", "user"),
    [
        ({"FlockGuestOf": "chem", "NiceUser": True}, "eve@chem@head"),
        ({"FlockGuestOf": "chem", "NiceUser": False}, "eve@chem@head"),
        ({"NiceUser": True}, "nice-user/bob@head"),
    ],
    ids=["another pool", "a pool that is owed", "nice"],
)
def test_guests_leave_for_jobs_of_this_pools_users_only(ad: dict[str, object], user: str) -> None:
    assert taken([guest("s")], request(1, 1, **ad), user=user) == []  # type: ignore[arg-type]


def test_guests_leave_for_a_user_of_this_pool_whose_queue_is_elsewhere() -> None:
    assert taken([guest("s")], request(1, 1, FlockGuestOf="~home", FlockPool="chem")) == [("s", "guest")]


def test_a_guest_stays_where_that_is_agreed_or_it_came_ahead() -> None:
    assert taken([guest("agreed", leaves=False)]) == []
    assert taken([guest("ahead", leaves=False, RemoteNiceUser=None)]) == []


def test_a_machine_keeps_a_guest_that_its_owner_prefers() -> None:
    assert taken([guest("s", rank=5.0)]) == []
    assert taken([guest("s", rank=5.0, Rank=["TARGET.RequestCpus * 5.0"])]) == [("s", "guest")]


def test_a_job_that_looks_for_a_better_machine_has_no_guest_leave() -> None:
    assert taken([guest("s")], request(1, 1, moving=True, CurrentRank=0.0, Rank=9.0)) == []


def test_a_job_whose_guest_leaves_already_is_no_reason_for_another() -> None:
    assert taken([guest("s", Activity="Vacating"), guest("t", Activity="Retiring")]) == []


def test_another_pools_word_makes_nobody_leave() -> None:
    """A pool that lends cannot have its machine pass for one of ours with a guest."""
    assert taken([guest("s", FlockPool="evil")]) == []


def test_why_a_guests_machine_is_not_taken() -> None:
    slots = [
        guest("guest_stays@m", leaves=False),
        guest("guest_ahead@m", leaves=False, RemoteNiceUser=None),
        guest("guest_young@m", saved=False, since=NOW - 5),
        guest("taken@m"),
        claimed("never@m", "carl"),
    ]
    expected = {name.upper(): [f"{name}@m"] for name in ("guest_stays", "guest_ahead", "guest_young", "never")}
    assert kept_of("bob", request(1), slots, TERMS) == expected
    nice = kept_of("nice-user/bob", request(1, NiceUser=True), [guest("guest_nice@m")], TERMS)
    assert nice == {"GUEST_NICE": ["guest_nice@m"]}
