"""`python -m tests.chaos.real_flock --jobs N --kills K --seed S`: three real pools, and kill -9 of what runs there."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.inside import lacking, run_inside

ABOUT = """\
Three pools of real nodes that lend to each other, each with its own authority, state and network, joined by tokens.
Jobs of every kind run across them (copied and remote files, pipes, mapped files, checkpoints), while heads, startds,
keepers, fork servers, file servers and jobs are killed. Nodes are started again. In the end each job has been completed
once, with the right bytes, no two copies of it ran at the same time, and no process is left. If not, the status is 1.

  python -m tests.chaos.real_flock --jobs 1000 --kills 150 --seed 1      ten minutes; needs root
"""


def main() -> int:
    """Play one run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.real_flock", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="where logs and what shows a fault are kept")
    given = parser.parse_args()
    if missing := lacking():
        print(f"this machine lacks {missing}", file=sys.stderr)
        return 2
    directory = given.directory or Path(tempfile.mkdtemp(prefix="poolnode-flock-"))
    directory.mkdir(parents=True, exist_ok=True)
    words = [str(given.seed), str(given.jobs), str(given.kills), str(directory.absolute())]
    return run_inside("tests.chaos.flock_round", words)


if __name__ == "__main__":
    sys.exit(main())
