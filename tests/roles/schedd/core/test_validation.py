"""The ad of a job takes only so much from a client."""

from __future__ import annotations

import pytest

from pool.errors import PoolError
from pool.roles.schedd.core.validation import LONGEST_NAME, clean


def test_names_are_short() -> None:
    """They are remembered, whoever sends them."""
    assert clean({"A" * LONGEST_NAME: 1}) == {"A" * LONGEST_NAME: 1}
    with pytest.raises(PoolError, match=r"an attribute has 1,001 characters"):
        clean({"A" * (LONGEST_NAME + 1): 1})
