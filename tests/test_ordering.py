"""Tests that wait are spread over the workers but one; nothing is lost, and files stay whole."""

from __future__ import annotations

import pytest

from tests.ordering import FIRST, WAITING, for_workers

SLOW = [f"{WAITING[place % 3]}test_{place // 4}.py::test_{place}" for place in range(40)]
QUICK = [f"tests/policy/test_{place // 10}.py::test_{place}" for place in range(200)]
WHOLE = sorted([*SLOW, *QUICK, *(f"{FIRST}::test_{place}" for place in range(6))])


def file_of(test: str) -> str:
    return test.partition("::")[0]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_each_test_runs_once_and_waiting_files_are_whole(workers: int) -> None:
    order = for_workers(WHOLE, file_of, workers)
    assert sorted(order) == WHOLE
    waiting = [file_of(test) for test in order if test.startswith(WAITING)]
    assert [file for at, file in enumerate(waiting) if file not in waiting[:at]] == [
        file for at, file in enumerate(waiting) if not at or waiting[at - 1] != file
    ]


@pytest.mark.parametrize("workers", [3, 4])
def test_all_workers_but_the_last_begin_with_tests_that_wait(workers: int) -> None:
    order = for_workers(WHOLE, file_of, workers)
    share = len(order) // workers
    parts = [order[at * share : (at + 1) * share] for at in range(workers)]
    assert all(part[0].startswith(WAITING) for part in parts[:-1])
    assert file_of(parts[-1][0]) == FIRST
    assert not any(test.startswith(WAITING) for test in parts[-1])
