"""The matching of parts to machines over classes, against brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pool.policy.dedicated.flow import Choices, ClassMatching, fits_together

KINDS = ("a", "b", "c", "d")
CHOICES = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True).map(tuple)


def possible(supplies: dict[str, int], parts: list[Choices[str]]) -> bool:
    """Tries every placement, part by part."""
    if not parts:
        return True
    first, *rest = parts
    for kind in first:
        if supplies.get(str(kind), 0) > 0:
            left = {**supplies, str(kind): supplies[str(kind)] - 1}
            if possible(left, rest):
                return True
    return False


def test_first_fit_would_fail_where_kinds_overlap() -> None:
    matching = ClassMatching({"a": 2, "b": 2})
    assert matching.offer([(("a", "b"), 2)])  # takes both of a
    assert matching.offer([(("a",), 2)])  # and moves to b for this
    assert matching.flow(("a", "b")) == {"b": 2}
    assert not matching.offer([(("a", "b"), 1)])


def test_nothing_changes_where_a_demand_is_refused() -> None:
    matching = ClassMatching({"a": 3, "b": 1})
    assert matching.offer([(("a", "b"), 3)])
    before = (dict(matching.left), matching.flow(("a", "b")), matching.total)
    assert not matching.offer([(("b",), 1), (("b",), 1)])
    assert (dict(matching.left), matching.flow(("a", "b")), matching.total) == before


@given(
    supplies=st.dictionaries(st.sampled_from(KINDS), st.integers(0, 3), min_size=1),
    jobs=st.lists(st.lists(st.tuples(CHOICES, st.integers(1, 2)), min_size=1, max_size=3), max_size=5),
)
def test_a_job_is_accepted_if_and_only_if_all_accepted_ones_fit_together(
    supplies: dict[str, int], jobs: list[list[tuple[Choices[str], int]]]
) -> None:
    matching = ClassMatching(supplies)
    accepted: list[Choices[str]] = []
    for job in jobs:
        parts = [choices for choices, count in job for _ in range(count)]
        can = possible(supplies, accepted + parts)
        assert matching.offer(job) is can
        if can:
            accepted += parts
        used: dict[str, int] = {}
        for choices in dict.fromkeys(accepted):
            flow = matching.flow(choices)
            assert sum(flow.values()) == accepted.count(choices)
            assert set(flow) <= set(choices)
            for kind, amount in flow.items():
                used[str(kind)] = used.get(str(kind), 0) + amount
        assert all(used.get(kind, 0) <= count for kind, count in supplies.items())
        assert matching.total == sum(supplies.values()) - len(accepted)


def test_a_hundred_thousand_machines_are_one_number() -> None:
    assert fits_together({"a": 60_000, "b": 40_000}, [(("a", "b"), 50_000), (("a",), 50_000)])
    assert not fits_together({"a": 60_000, "b": 40_000}, [(("a", "b"), 50_000), (("a",), 60_001)])
