"""The table of a cluster's jobs: a mapping that is never walked, copied or rebuilt as a whole."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.policy.paged_table import PAGE, PagedTable

NUMBERS = st.one_of(st.integers(0, 5), st.integers(PAGE - 2, PAGE + 2), st.integers(0, 5 * PAGE))


@given(st.lists(st.tuples(st.booleans(), NUMBERS)))
def test_a_table_is_a_mapping(steps: Sequence[tuple[bool, int]]) -> None:
    table, model = PagedTable[str](), dict[int, str]()
    for added, number in steps:
        if added:
            table[number] = model[number] = f"job {number}"
        elif number in model:
            del table[number], model[number]
        else:
            with pytest.raises(KeyError):
                del table[number]
        assert len(table) == len(model)
        assert bool(table) == bool(model)
        assert table.get(number) == model.get(number)
        assert (number in table) == (number in model)
    assert list(table) == sorted(model)
    assert sorted(table.values()) == sorted(model.values())
    assert dict(table.items()) == model
    for number, job in model.items():
        assert table[number] == job


@pytest.mark.parametrize("number", [-1, -PAGE, 2**64])
def test_no_job_has_a_number_that_none_can_have(number: int) -> None:
    table = PagedTable[str]()
    table[0] = "job 0"
    assert table.get(number) is None
    assert number not in table


def test_jobs_come_and_leave_while_they_are_walked() -> None:
    table = PagedTable[int]()
    for number in range(4 * PAGE):
        table[number] = number
    seen = []
    for number in table.values():
        seen.append(number)
        del table[number]
        table[number + 10 * PAGE] = number
    assert seen == list(range(4 * PAGE))
    assert sorted(table.values()) == seen


def test_a_walk_holds_one_page_of_jobs_that_leave() -> None:
    table = PagedTable[int]()
    for number in range(3 * PAGE):
        table[number] = number
    walk = table.values()
    assert next(walk) == 0
    for number in range(3 * PAGE):
        del table[number]
    assert list(walk) == list(range(1, PAGE))
