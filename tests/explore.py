"""Draw new cases for the tests that can draw: property tests, and tests that follow from a seed.

    python -m tests.explore [--minutes N] [--seed N] [FILE ...]

The ordinary run of the suite tries the same cases every time. This one tries others, round after round, until the time
is over. Each find is printed with the command that shows it again, and the exit status is 1 then. A find becomes a
fixed case together with its fix: an `@example` of its property test, or a seed beside the fixed ones.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import EXPLORED_SEED, REPOSITORY

#: How a file shows that it has tests which draw.
_DRAWS = re.compile(r"^@given\(|RuleBasedStateMachine|parametrize\(\"seed\"", re.MULTILINE)
#: Tests that start real nodes and keepers take minutes: they are explored when they are named.
_LONG = ("benchmarks", "checkpoint", "e2e")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def drawing_files(root: Path) -> list[Path]:
    """The test files below a directory that draw cases, but for the long ones."""
    short = (path for path in sorted(root.rglob("test_*.py")) if path.relative_to(root).parts[0] not in _LONG)
    return [path for path in short if _DRAWS.search(path.read_text())]


def explore(files: Sequence[Path | str], seed: int) -> list[str]:
    """Run one round and print its finds.

    Args:
        seed: what is drawn follows from it, so that a round can be repeated.

    Returns:
        The names of the tests that failed.
    """
    arguments = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    ran = subprocess.run(
        [sys.executable, *arguments, *map(str, files)],
        cwd=REPOSITORY,
        env={**os.environ, EXPLORED_SEED: str(seed)},
        capture_output=True,
        text=True,
    )
    finds = _FAILED.findall(ran.stdout)
    if ran.returncode not in (0, 1) or (ran.returncode == 1 and not finds):
        finds = [f"(pytest ended with status {ran.returncode})"]
    if finds:
        sys.stdout.write(ran.stdout[-20_000:] + ran.stderr[-2000:])
    for find in finds:
        sys.stdout.write(f"found: {EXPLORED_SEED}={seed} python -m pytest -n0 --hypothesis-seed={seed} '{find}'\n")
    return finds


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore until the time is over; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; a round that was begun is ended")
    parser.add_argument("--seed", type=int, help="of the first round; each round after it has the next")
    parser.add_argument("file", nargs="*", help="test files; all that draw and are short, where none is given")
    given = parser.parse_args(arguments)
    files = given.file or drawing_files(REPOSITORY / "tests")
    first = seed = given.seed or int.from_bytes(os.urandom(3), "big") + 1
    end, finds = time.monotonic() + given.minutes * 60, 0
    while seed == first or time.monotonic() < end:
        finds += len(explore(files, seed))
        sys.stdout.write(f"round {seed - first + 1}, seed {seed}: {finds} finds so far\n")
        sys.stdout.flush()
        seed += 1
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
