"""Python's collection of garbage: paused while many objects are made that stay, and rare in a command."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: New objects after which a command looks for garbage among them.
RARELY = 20_000


def collect_rarely() -> None:
    """For a program that lists and ends: it makes many objects and hardly any garbage, and its modules stay."""
    gc.freeze()
    gc.set_threshold(RARELY)


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Look for no garbage meanwhile: Python would look at each new object again and again, a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
