"""The keeper: a small native program that looks after one job each. Here only where to find it.

Its sources lie in the folders beside this file; `python -m pool.checkpoint.build` compiles them in a checkout, the
package's own build does it for an installation. Pool code reaches keepers through `pool.starter.keeper`.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def program() -> Path:
    """Where the keeper program of this installation lies, built or not."""
    return HERE / "bin" / "keeper"
