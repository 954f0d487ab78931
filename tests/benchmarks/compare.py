"""Two commits beside each other: the same benchmarks in turns, and the figures that became worse by more than noise.

The older commit is checked out into a temporary worktree with an environment of its own, and measured by its own
benchmarks. The two take turns, so that a machine whose load changes disturbs both alike. Each turn gives a pair of
values for each figure; the median of the pairs' ratios is the change, and their spread is the noise.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["slower", "faster", "same", "one side only"]

LEAST_NOISE = 0.05
"""No change below this share counts: five turns of a shared machine say no more."""

MORE_IS_BETTER = ("/s", "x", "%")
"""How units end of which more is better, where a figure has no goal that says so."""

FAILED_TO_RUN = 2
"""The exit status of `python -m tests.benchmarks` where a benchmark could not be run; 1 is a goal that was missed."""


class CannotCompare(Exception):
    """The comparison cannot be made; the text says why and what to do."""


@dataclass(frozen=True)
class Figure:
    """One figure on both sides.

    Args:
        benchmark, metric, unit: what was measured.
        older, newer: its values, one for each turn; a pair of one index comes from one turn.
        less_is_better: whether a smaller value is the better one.
    """

    benchmark: str
    metric: str
    unit: str
    older: tuple[float, ...]
    newer: tuple[float, ...]
    less_is_better: bool

    @property
    def change(self) -> float | None:
        """How much worse the newer side is: the median of the pairs' ratios (1.2: a fifth worse), None without any."""
        return statistics.median(ratios) if (ratios := self._ratios()) else None

    @property
    def noise(self) -> float:
        """The share that chance explains: twice the standard error of the median, at least `LEAST_NOISE`."""
        ratios = self._ratios()
        if len(ratios) < 2:
            return LEAST_NOISE
        middle = statistics.median(ratios)
        deviation = 1.4826 * statistics.median(abs(ratio - middle) for ratio in ratios)
        return max(LEAST_NOISE, 2 * 1.2533 * deviation / math.sqrt(len(ratios)))

    @property
    def verdict(self) -> Verdict:
        """Whether the newer side differs by more than the noise."""
        change = self.change
        if change is None:
            return "one side only"
        if change > 1 + self.noise:
            return "slower"
        return "faster" if change < 1 / (1 + self.noise) else "same"

    def as_dict(self) -> dict[str, Any]:
        """The figure for `--json`."""
        return {
            "benchmark": self.benchmark,
            "metric": self.metric,
            "unit": self.unit,
            "older": statistics.median(self.older) if self.older else None,
            "newer": statistics.median(self.newer) if self.newer else None,
            "change": self.change,
            "noise": self.noise,
            "verdict": self.verdict,
        }

    def _ratios(self) -> list[float]:
        pairs = zip(self.older, self.newer, strict=False)
        if self.less_is_better:
            return [new / old for old, new in pairs if old > 0 and new > 0]
        return [old / new for old, new in pairs if old > 0 and new > 0]


def figures(older: Sequence[Sequence[dict[str, Any]]], newer: Sequence[Sequence[dict[str, Any]]]) -> list[Figure]:
    """The rows of all turns of both sides, joined by benchmark and metric, in the newer side's order."""
    values: tuple[defaultdict[tuple[str, str], list[float]], ...] = (defaultdict(list), defaultdict(list))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for side, turns in zip(values, (older, newer), strict=True):
        for turn in turns:
            for row in turn:
                key = (row["benchmark"], row["metric"])
                side[key].append(float(row["value"]))
                rows[key] = row
    order = sorted(rows, key=lambda key: list(values[1]).index(key) if key in values[1] else len(rows))
    return [
        Figure(*key, rows[key]["unit"], tuple(values[0][key]), tuple(values[1][key]), less_is_better(rows[key]))
        for key in order
    ]


def less_is_better(row: dict[str, Any]) -> bool:
    """Which side of a row's figure is the good one: as its goal says, otherwise by its unit."""
    goal = row.get("goal")
    if isinstance(goal, str):
        return goal.startswith("at most")
    return not str(row["unit"]).endswith(MORE_IS_BETTER)


def compare(commit: str, names: Sequence[str], share: float, turns: int) -> list[Figure]:
    """Measure both sides in turns.

    Raises:
        CannotCompare: git does not know the commit, or one of the sides cannot be built.
    """
    here = Path(__file__).resolve().parents[2]
    with checkout(here, commit) as there:
        sides: tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]] = ([], [])
        for turn in range(turns):
            order = ((0, there), (1, here)) if turn % 2 == 0 else ((1, here), (0, there))
            for side, tree in order:
                print(f"turn {turn + 1} of {turns}: {commit if side == 0 else 'this checkout'}", file=sys.stderr)
                sides[side].append(measure(tree, names, share))
        return figures(*sides)


def measure(tree: Path, names: Sequence[str], share: float) -> list[dict[str, Any]]:
    """One turn of one side: the rows of its benchmarks. A benchmark that cannot be run there has no rows."""
    python = tree / ".venv/bin/python"
    program = [str(python) if python.exists() else sys.executable, "-m", "tests.benchmarks"]
    rows = []
    for name in names:
        run = subprocess.run(
            [*program, name, "--json", "--share", str(share)], cwd=tree, capture_output=True, text=True, check=False
        )
        printed = [line for line in run.stdout.splitlines() if line.startswith("{")]
        if run.returncode >= FAILED_TO_RUN or not printed:
            last = (run.stderr.strip().splitlines() or ["no word"])[-1]
            print(f"  {name} has no figures there: {last}", file=sys.stderr)
            continue
        rows += [json.loads(line) for line in printed]
    return rows


@contextlib.contextmanager
def checkout(here: Path, commit: str) -> Iterator[Path]:
    """A worktree of a commit with an environment of its own, removed at the end, also after Ctrl-C."""
    top = Path(tempfile.mkdtemp(prefix="poolnode-compare-"))
    there = top / "tree"
    try:
        command(here, "git", "worktree", "add", "--quiet", "--detach", str(there), commit)
        print(f"building {commit}", file=sys.stderr)
        command(there, sys.executable, "-m", "venv", ".venv")
        command(there, ".venv/bin/pip", "install", "--quiet", "-e", ".[test]")
        yield there
    finally:
        shutil.rmtree(top, ignore_errors=True)
        subprocess.run(["git", "worktree", "prune"], cwd=here, check=False, stderr=subprocess.DEVNULL)


def command(directory: Path, *arguments: str) -> None:
    """Run one step of the build.

    Raises:
        CannotCompare: it failed; the text has its last line.
    """
    run = subprocess.run(arguments, cwd=directory, capture_output=True, text=True, check=False)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no word"])[-1]
        raise CannotCompare(f"{' '.join(arguments[:3])} failed: {last}")
