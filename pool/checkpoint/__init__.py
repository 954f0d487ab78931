"""The keeper: a small native program; each keeper looks after one job. This module only finds the program.

Its sources lie in the folders beside this file. `python -m pool.checkpoint.build` compiles them in a checkout; the
build of the package does it for an installation. Pool code reaches keepers through `pool.starter.keeper`.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def program() -> Path:
    """The path of the keeper program of this installation, built or not."""
    return HERE / "bin" / "keeper"
