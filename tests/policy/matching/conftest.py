"""Each test begins as a fresh process does: no ad has yet used the name of a scope for an attribute of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pool.classad.names import SHADOWED


@pytest.fixture(autouse=True)
def no_shadowed_scopes() -> Iterator[None]:
    before = set(SHADOWED)
    SHADOWED.clear()
    yield
    SHADOWED.update(before)
