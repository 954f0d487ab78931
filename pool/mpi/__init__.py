"""The ranker: a small native program that starts the ranks of one part of an MPI job. Here only where to find it, and
its helper for PMIx.

The sources lie in `ranker/`, with the whole picture in `ranker.h`, and in `pmix_server/`; `pool.checkpoint.build`
compiles them. `pool.starter.ranks` has the ranker's options, and reads its report on the ranks.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def program() -> Path:
    """Where the ranker of this installation lies, built or not."""
    return HERE / "bin" / "ranker"


def pmix_server() -> Path:
    """Where the helper for PMIx of this installation lies, built or not."""
    return HERE / "bin" / "pmix_server"
