"""The order of a group's idle jobs, against a sorted list."""

from collections.abc import Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.policy.idle_order import PIECE, IdleOrder
from pool.policy.paged_table import PAGE

JOBS = st.tuples(
    st.sampled_from([0.0, -1.5, 3.0, float("inf")]),
    st.integers(1, 4),
    st.one_of(st.integers(0, 3), st.integers(PAGE - 1, PAGE + 1), st.integers(0, 3 * PAGE)),
)


@given(st.lists(JOBS, max_size=60))
def test_the_first_is_the_smallest_of_those_that_are_there(jobs: Sequence[tuple[float, int, int]]) -> None:
    order, model = IdleOrder(), set[tuple[float, int, int]]()
    for job in jobs:
        if job in model:
            order.remove(*job)
            model.remove(job)
        else:
            order.add(*job)
            model.add(job)
        places = sorted((-prio, cluster, proc) for prio, cluster, proc in model)
        assert order.first() == (places[0] if places else None)
        assert list(order) == [(cluster, proc) for _, cluster, proc in places]


@pytest.mark.parametrize("descending", [False, True])
def test_many_clusters_of_one_job_each(descending: bool) -> None:
    order, clusters = IdleOrder(), list(range(1, 4 * PIECE))
    if descending:
        clusters.reverse()
    for cluster in clusters:
        order.add(0.0, cluster, 0)
    assert list(order) == [(cluster, 0) for cluster in sorted(clusters)]
    for cluster in clusters[::2]:
        order.remove(0.0, cluster, 0)
    left = sorted(clusters[1::2])
    for cluster in left:
        assert order.first() == (0.0, cluster, 0)
        order.remove(0.0, cluster, 0)
    assert order.first() is None


def test_nothing_is_left_of_a_large_group_that_is_held_from_behind() -> None:
    """With all but the first gone, the next one is found without a look at the others."""
    order, many = IdleOrder(), 50 * PAGE
    for proc in range(many):
        order.add(0.0, 1, proc)
    for proc in reversed(range(1, many - 1)):
        order.remove(0.0, 1, proc)
    assert list(islice(order, 3)) == [(1, 0), (1, many - 1)]
    order.remove(0.0, 1, 0)
    assert order.first() == (0.0, 1, many - 1)
    assert sum(map(len, order._pieces)) == len(order._members) == 1


def test_a_job_that_is_not_there_cannot_leave() -> None:
    with pytest.raises(KeyError):
        IdleOrder().remove(0.0, 1, 0)
