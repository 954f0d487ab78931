"""A few seeds of the random trees of processes; `python -m tests.checkpoint.trees` draws others."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.trees import wander


@pytest.mark.parametrize("seed", [0, 1, 7])
async def test_a_random_tree_moves(keepers: NativeKeepers, tmp_path: Path, seed: int) -> None:
    """None of its processes sees that it was moved, and nothing of it is refused."""
    assert await wander(keepers, tmp_path, seed, steps=4) == ""
