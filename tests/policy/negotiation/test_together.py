"""Where priorities belong to machines, all jobs of a machine stand in one order, whoever submitted them (EV 2.6)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pool.policy.job_groups import JobGroup
from pool.policy.matching import SlotIndex
from pool.policy.negotiation import NegotiationTerms, Outcome, ResourceRequest, cycle
from pool.policy.priorities import CycleSubmitter, SubmitterAccount, UpDownTurns
from tests.policy.negotiation.support import NOW, request, slot


def one(number: int, *runs: tuple[float, int], **more: object) -> ResourceRequest:
    """A request for jobs of these priorities."""
    return replace(request(number, sum(count for _, count in runs), **more), runs=runs)  # type: ignore[arg-type]


def match(requests: dict[str, list[ResourceRequest]], slots: int, *, partitionable: bool = False) -> Outcome:
    """Negotiate for submitters of one machine."""
    picture = SlotIndex()
    for number in range(slots):
        picture.set_ad(*slot(f"s{number:02}", cpus=4 if partitionable else 1, partitionable=partitionable))
    account = SubmitterAccount("machine")
    turns = UpDownTurns([(CycleSubmitter(name, account), 0.0) for name in sorted(requests)], slots)
    together = {name: sorted(requests) for name in requests}
    return cycle(picture, requests, turns, NegotiationTerms(), NOW, (), together)


def given_out(outcome: Outcome, requests: dict[str, list[ResourceRequest]]) -> list[float]:
    """The priorities of the jobs that were matched, each request's from its front."""
    found: list[float] = []
    for name, own in requests.items():
        for wanted in own:
            count = sum(m.count for m in outcome.matches if (m.submitter, m.request) == (name, wanted.number))
            each = [priority for priority, many in wanted.runs for _ in range(many)]
            found += each[:count]
    return sorted(found, reverse=True)


def test_the_job_with_the_highest_priority_of_the_machine_comes_first() -> None:
    requests = {"alice": [one(1, (0.0, 3))], "bob": [one(2, (5.0, 2), (-5.0, 2))]}
    outcome = match(requests, 4)
    assert [found.submitter for found in outcome.matches] == ["bob", "bob", "alice", "alice"]


def test_equal_priorities_go_by_who_came_first() -> None:
    requests = {"alice": [one(1, (0.0, 2), oldest=9.0)], "bob": [one(2, (0.0, 2), oldest=5.0)]}
    assert [found.submitter for found in match(requests, 3).matches] == ["bob", "bob", "alice"]


def test_jobs_that_fit_nowhere_stop_nobody() -> None:
    requests = {"alice": [one(1, (9.0, 3), Requirements=["false"])], "bob": [one(2, (0.0, 2))]}
    outcome = match(requests, 4)
    assert [found.submitter for found in outcome.matches] == ["bob", "bob"]
    assert outcome.unmatched == {"alice": {1: 3}}


RUNS = st.lists(
    st.tuples(st.integers(-5, 5).map(float), st.integers(1, 4)), max_size=4, unique_by=lambda run: run[0]
).map(lambda runs: tuple(sorted(runs, reverse=True)))


@given(
    st.lists(st.lists(RUNS.filter(bool), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(0, 20),
    st.booleans(),
)
def test_no_job_is_passed_over_for_one_of_lower_priority(
    submitters: list[list[tuple[tuple[float, int], ...]]], slots: int, partitionable: bool
) -> None:
    requests = {
        f"user{place}": [one(10 * place + number, *runs) for number, runs in enumerate(own)]
        for place, own in enumerate(submitters)
    }
    outcome = match(requests, slots, partitionable=partitionable)
    all_jobs = [p for own in requests.values() for wanted in own for p, many in wanted.runs for _ in range(many)]
    room = slots * (4 if partitionable else 1)
    assert given_out(outcome, requests) == sorted(all_jobs, reverse=True)[:room]


@given(st.lists(st.integers(-3, 3)), st.integers(0, 10), st.integers(0, 30))
def test_the_runs_of_a_group(prios: list[int], skip: int, most: int) -> None:
    group = JobGroup(1, "alice", b"", request(1).ad)
    for number, prio in enumerate([*prios, 9, 9]):
        group.job_added(float(prio), number, 0)
    group.job_removed(9.0, len(prios), 0)
    group.job_removed(9.0, len(prios) + 1, 0)
    each = [prio for prio, count in group.runs(skip, most) for _ in range(int(count))]
    assert each == sorted(map(float, prios), reverse=True)[skip : skip + most]
    assert group.idle == len(prios)
