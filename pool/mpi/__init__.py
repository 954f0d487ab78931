"""The ranker: a small native program that starts the ranks of one part of an MPI job. Here only where to find it.

Its sources lie in `ranker/`, with the whole picture in `ranker.h`; `pool.checkpoint.build` compiles it. What it is
started with, and what it says about its ranks, is `pool.starter.ranks`'s.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def program() -> Path:
    """Where the ranker of this installation lies, built or not."""
    return HERE / "bin" / "ranker"
