"""A negotiation cycle: equal shares, first come first served within a user, rank, partitionable slots."""

from __future__ import annotations

from tests.policy.negotiation.support import negotiate, request, slot


def test_every_slot_is_used_once() -> None:
    outcome = negotiate({"a": [request(1, 10)]}, [slot(f"s{n}") for n in range(4)])
    assert sorted(match.slot for match in outcome.matches) == ["s0", "s1", "s2", "s3"]
    assert outcome.unmatched == {"a": {1: 6}}


def test_users_share_equally_and_leave_over_what_they_do_not_want() -> None:
    outcome = negotiate(
        {"heavy": [request(1, 100, 0.0)], "light": [request(2, 1, 5.0)]},
        [slot(f"s{n}") for n in range(6)],
    )
    got = [match.submitter for match in outcome.matches]
    assert got.count("light") == 1
    assert got.count("heavy") == 5


def test_whoever_came_first_gets_the_only_slot() -> None:
    outcome = negotiate({"b": [request(1, 1, 5.0)], "a": [request(2, 1, 9.0)]}, [slot("s")])
    assert [match.submitter for match in outcome.matches] == ["b"]


def test_the_jobs_rank_chooses_among_slots() -> None:
    machines = [slot("slow", Mips=1), slot("fast", Mips=9), slot("middle", Mips=5)]
    outcome = negotiate({"a": [request(1, 2, Rank=["TARGET.Mips"])]}, machines)
    assert [match.slot for match in outcome.matches] == ["fast", "middle"]


def test_the_machines_rank_decides_between_equals() -> None:
    machines = [slot("plain"), slot("ours", Rank=['TARGET.Owner == "alice"'])]
    outcome = negotiate({"a": [request(1, 1, Owner="alice")]}, machines)
    assert [match.slot for match in outcome.matches] == ["ours"]


def test_both_sides_must_agree() -> None:
    picky = slot("picky", Requirements=['TARGET.Owner == "bob"'])
    small = slot("small", memory=5)
    outcome = negotiate({"a": [request(1, 2, Owner="alice")]}, [picky, small])
    assert outcome.matches == []


def test_a_partitionable_slot_takes_what_fits() -> None:
    outcome = negotiate({"a": [request(1, 100)]}, [slot("p", cpus=8, memory=55, partitionable=True)])
    assert sum(match.count for match in outcome.matches) == 5


def test_a_partitionable_slot_is_shared_by_users() -> None:
    outcome = negotiate(
        {"a": [request(1, 100, 0.0)], "b": [request(2, 100, 1.0)]},
        [slot("p", cpus=8, partitionable=True)],
    )
    counts = {name: sum(m.count for m in outcome.matches if m.submitter == name) for name in ("a", "b")}
    assert counts == {"a": 4, "b": 4}


def test_who_runs_most_comes_last() -> None:
    outcome = negotiate(
        {"busy": [request(1, 10, 0.0)], "new": [request(2, 10, 9.0)]},
        [slot(f"s{n}") for n in range(4)],
        {"busy": 3},
    )
    got = [match.submitter for match in outcome.matches]
    assert (got.count("new"), got.count("busy")) == (4, 0) or (got.count("new"), got.count("busy")) == (3, 1)
