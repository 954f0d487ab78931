"""`python -m tests.benchmarks [NAME ...] [--json] [--share 0.1] [--list] [--compare COMMIT]`: run benchmarks.

Exits with status 1 when a goal was missed, or when a figure became worse than that of the commit beside it; with 2
when a benchmark could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import traceback
from collections.abc import Sequence

from tests.benchmarks import compare, figures
from tests.benchmarks.rows import BENCHMARKS, Effort, Row, number, render, table

assert figures


def main() -> int:
    """Run what was asked for."""
    names = ", ".join(BENCHMARKS)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure the figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {names} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--share", type=float, default=1.0, help="of the amount of work, for a quick look")
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    parser.add_argument(
        "--compare", metavar="COMMIT", help="measure that commit too, in turns; show what became slower"
    )
    parser.add_argument("--turns", type=int, default=5, help="with --compare: how often each side is measured")
    given = parser.parse_args()
    if given.list:
        for name, function in BENCHMARKS.items():
            print(f"{name:12} {(function.__doc__ or '').partition(chr(10))[0]}")
        return 0
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]} (there are {names})", file=sys.stderr)
        return 2
    if given.compare:
        return beside(given.compare, given.names or list(BENCHMARKS), given.share, given.turns, given.json)
    rows: list[Row] = []
    broken = False
    for name in given.names or BENCHMARKS:
        try:
            measured = asyncio.run(BENCHMARKS[name](Effort(given.share)))
        except Exception:
            traceback.print_exc()
            print(f"benchmark {name} could not be run", file=sys.stderr)
            broken = True
            continue
        rows += measured
        for row in measured if given.json else ():
            print(json.dumps({"benchmark": name} | row.as_dict()), flush=True)
    if not given.json:
        print(render(rows))
    return 2 if broken else int(any(row.met is False for row in rows))


def beside(commit: str, names: Sequence[str], share: float, turns: int, as_json: bool) -> int:
    """Show this checkout's figures beside those of a commit; 1 when one of them became worse."""
    if turns < 1:
        print("--turns: at least 1", file=sys.stderr)
        return 2
    try:
        compared = compare.compare(commit, names, share, turns)
    except compare.CannotCompare as error:
        print(f"cannot compare with {commit}: {error}", file=sys.stderr)
        return 2
    if as_json:
        for figure in compared:
            print(json.dumps(figure.as_dict()))
    else:
        head = ("figure", commit, "now", "unit", "change", "noise", "")
        lines = [head]
        for figure in compared:
            shown = figure.as_dict()
            change = "-" if figure.change is None else f"{figure.change:.2f} x"
            medians = (number(shown["older"]), number(shown["newer"]))
            lines.append((figure.metric, *medians, figure.unit, change, f"{figure.noise:.0%}", figure.verdict))
        print(table(lines, right={1, 2, 4, 5}))
        print("change: how many times as slow, as large or as little as before; below 1 is better")
    return int(any(figure.verdict == "slower" for figure in compared))


if __name__ == "__main__":
    sys.exit(main())
