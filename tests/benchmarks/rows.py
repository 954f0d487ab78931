"""The result of a benchmark, the list of benchmarks, and how their rows are shown.

Measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Benchmark = Callable[["Effort"], Coroutine[Any, Any, list["Row"]]]

BENCHMARKS: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Effort:
    """How much of everything to do: 1 is the whole figure, a tenth only shows that the benchmark works."""

    share: float = 1.0

    def of(self, amount: int, least: int = 1) -> int:
        """That share of an amount."""
        return max(least, round(amount * self.share))


@dataclass(frozen=True)
class Goal:
    """The goal of a row: its value, or its ratio to the peer's value, at most or at least an amount."""

    side: Literal["at most", "at least"]
    amount: float
    what: Literal["value", "ratio"] = "value"

    def met(self, value: float, ratio: float | None) -> bool | None:
        """Whether it is reached; None where there is no peer to compare with."""
        measured = value if self.what == "value" else ratio
        if measured is None:
            return None
        return measured <= self.amount if self.side == "at most" else measured >= self.amount

    def text(self, unit: str) -> str:
        """The goal in words."""
        amount = f"{self.amount:,g}"
        return f"{self.side} {amount} {unit}" if self.what == "value" else f"{self.side} {amount} x"


@dataclass(frozen=True)
class Row:
    """One figure.

    Args:
        metric: what was measured, in words.
        value, unit: ours.
        peer, peer_value: who was measured beside us, in the same unit; the ratio is ours over theirs.
        goal: what the row is held to, if anything.
        note: what else a reader needs to know.
    """

    metric: str
    value: float
    unit: str
    goal: Goal | None = None
    peer: str = ""
    peer_value: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Our value over the peer's."""
        return self.value / self.peer_value if self.peer_value else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none, or nothing to compare with."""
        return self.goal.met(self.value, self.ratio) if self.goal else None

    def as_dict(self) -> dict[str, Any]:
        """The row for `--json`."""
        goal = self.goal.text(self.unit) if self.goal else None
        return asdict(self) | {"goal": goal, "ratio": self.ratio, "met": self.met}


def benchmark(name: str) -> Callable[[Benchmark], Benchmark]:
    """Enter a benchmark into the list under a name."""

    def enter(function: Benchmark) -> Benchmark:
        BENCHMARKS[name] = function
        return function

    return enter


def render(rows: Sequence[Row]) -> str:
    """The rows as a table for people."""
    head = ("metric", "value", "unit", "peer", "peer value", "ratio", "goal", "met")
    cells = [head]
    for row in rows:
        met = {True: "yes", False: "NO", None: "-"}[row.met]
        cells.append(
            (
                row.metric + (f" ({row.note})" if row.note else ""),
                number(row.value),
                row.unit,
                row.peer or "-",
                number(row.peer_value),
                number(row.ratio),
                row.goal.text(row.unit) if row.goal else "-",
                met,
            )
        )
    return table(cells, right={1, 4, 5})


def table(cells: Sequence[Sequence[str]], right: set[int]) -> str:
    """Lines of cells in columns; those in `right` end at one edge."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def number(value: float | None) -> str:
    """A number with three or four digits that mean something."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
