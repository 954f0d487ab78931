"""The order of the tests of a whole run, so that processors are busy from its beginning to its end.

Tests of real nodes and of the keeper wait for most of their time; those of functions keep a processor busy. Each worker
of pytest-xdist (`--dist worksteal`) begins with a part of the list of its own, all parts of one length, and takes from
the end of another's when it has come to the end of its own. So the parts of the first workers begin with the tests that
wait, and the others' have none: some wait while others work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: Folders and files of tests that wait for processes most of the time.
WAITING = (
    *("tests/e2e/", "tests/checkpoint/", "tests/chaos/", "tests/mpi/", "tests/starter/", "tests/network/"),
    *("tests/test_examples.py", "tests/roles/schedd/parallel/test_commands.py"),
)
#: The longest test of all, which keeps one processor busy: it comes first.
FIRST = "tests/test_style.py"


def for_workers(items: Sequence[T], file_of: Callable[[T], str], workers: int) -> list[T]:
    """The same tests in another order; those of one file stay together, in their order.

    Args:
        file_of: the path of a test's file from the root of the tree.
        workers: how many there are; one less has tests that wait to begin with.
    """
    if workers < 2:
        return list(items)
    first = [item for item in items if file_of(item) == FIRST]
    waiting = [item for item in items if file_of(item).startswith(WAITING)]
    quick = [item for item in items if file_of(item) != FIRST and not file_of(item).startswith(WAITING)]
    share, parts = len(items) // workers, workers - 1
    order: list[T] = []
    for part in range(parts):
        begin, end = (_at_file(waiting, file_of, len(waiting) * place // parts) for place in (part, part + 1))
        order += waiting[begin:end]
        room = max(0, (part + 1) * share - len(order))
        order, quick = order + quick[:room], quick[room:]
    return order + first + quick


def _at_file(items: Sequence[T], file_of: Callable[[T], str], place: int) -> int:
    """The nearest place from there on at which another file begins."""
    while 0 < place < len(items) and file_of(items[place]) == file_of(items[place - 1]):
        place += 1
    return place
