"""Tables for notebooks: `_repr_html_` of a pool, a cluster, a job and an executor. Every text is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from pool.client.results import STATES, Result

if TYPE_CHECKING:
    from pool.classad import ClassAd

#: Rows that a table shows; it says how many more there are.
ROWS = 20


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in HTML, with a title."""
    every = [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in every[:ROWS])
    rest = len(every) - ROWS
    more = f'<tr><td colspan="{len(columns)}">and {rest} more</td></tr>' if rest > 0 else ""
    shown = f"<thead><tr>{head}</tr></thead><tbody>{body}{more}</tbody>" if every else ""
    return f"<table><caption>{escape(title)}</caption>{shown}</table>"


def results_table(title: str, results: Sequence[Result]) -> str:
    """Jobs, with how many are in which state."""
    counts = Counter(result.state for result in results)
    words = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    rows = [
        (result.job, result.state, _ended(result), f"{result.wall:.1f} s", result.host, result.reason)
        for result in results
    ]
    return table(f"{title}: {words}", ("job", "state", "exit", "ran", "machine", "reason"), rows)


def _ended(result: Result) -> str:
    if result.signal is not None:
        return f"signal {result.signal}"
    return "" if result.exit_code is None else str(result.exit_code)


def pool_tables(address: str, slots: Sequence[ClassAd], jobs: Sequence[ClassAd]) -> str:
    """The pool's slots, and how many jobs are in which state."""
    counts = Counter(STATES.get(int(ad.value("JobStatus", 0)), "unknown") for ad in jobs)
    words = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "no jobs"
    names = ("Name", "State", "Activity", "Cpus", "Memory")
    rows = [tuple(ad.value(name) for name in names) for ad in slots]
    return table(f"Pool at {address}: {words}", tuple(name.lower() for name in names), rows)
