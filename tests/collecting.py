"""The collection of tests, which each worker of a run does for itself: all modules are imported in each of them.

In a clean copy every module must be compiled first. A worker leaves compiled modules beside their sources for the
others, but workers that go through the same files at the same time would each compile all of them. So each begins at a
place of its own, and finds most of the others' work done.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def from_own_place(items: Sequence[T], worker: int, workers: int) -> list[T]:
    """The same items, beginning where this worker's part of them begins.

    Args:
        worker: its number, from 0 on.
    """
    begin = len(items) * worker // workers
    return [*items[begin:], *items[:begin]]


def import_tests(root: Path, files: Sequence[Path], worker: int, workers: int) -> None:
    """Import these modules, from this worker's own place on. A module that cannot be imported is left to pytest, which
    tries again and says why.
    """
    for file in from_own_place(files, worker, workers):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


@contextlib.contextmanager
def made_to_stay() -> Iterator[None]:
    """While modules and tests are made, which all stay to the end: look for no garbage among them, now or later."""
    gc.disable()
    try:
        yield
    finally:
        freeze_what_is_left()
        gc.enable()


def freeze_what_is_left() -> None:
    """After the tests of a file: free their garbage. What is left of them stays, too, and is not looked at again."""
    gc.collect()
    gc.freeze()
