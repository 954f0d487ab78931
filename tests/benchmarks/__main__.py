"""`python -m tests.benchmarks [NAME ...] [--json] [--share 0.1] [--list]`: run benchmarks, show their rows.

Ends with status 1 when a goal was missed, 2 when a benchmark could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import traceback

from tests.benchmarks import figures
from tests.benchmarks.rows import BENCHMARKS, Effort, Row, render

assert figures


def main() -> int:
    """Run what was asked for."""
    names = ", ".join(BENCHMARKS)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure the figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {names} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--share", type=float, default=1.0, help="of the amount of work, for a quick look")
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    given = parser.parse_args()
    if given.list:
        for name, function in BENCHMARKS.items():
            print(f"{name:12} {(function.__doc__ or '').partition(chr(10))[0]}")
        return 0
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]} (there are {names})", file=sys.stderr)
        return 2
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


if __name__ == "__main__":
    sys.exit(main())
