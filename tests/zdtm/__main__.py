"""`python -m tests.zdtm [NAME ...] [--json]`: CRIU's tests as jobs, each moved once between two nodes.

Ends with status 1 when a test went wrong after a checkpoint that was called good, 2 when the suite could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import re
import sys

from tests.zdtm.jobs import Outcome, run_suite
from tests.zdtm.suite import NoSuite, find_suite, list_programs

#: The rows of the table in docs/checkpoint.md.
ROWS = {
    "unfit": "do not pass inside a job, undisturbed (they need root, another machine, or what no job may do)",
    "moved": "were moved, and passed",
    "refused": "were refused by name",
    "wrong": "were wrong after a checkpoint that was called good",
}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.zdtm", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the suite's programs (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object a test, and no table")
    given = parser.parse_args()
    try:
        static = find_suite()
    except NoSuite as error:
        print(error, file=sys.stderr)
        return 2
    programs = list_programs(static)
    for name in given.names:
        if name not in programs:
            print(f"the suite has no program {name}", file=sys.stderr)
            return 2
    wanted = {name: programs[name] for name in given.names or programs}

    def say(outcome: Outcome) -> None:
        if given.json:
            print(json.dumps(outcome.as_dict()), flush=True)
        elif outcome.kind in ("wrong", "refused"):
            print(f"{outcome.name}: {outcome.kind}: {outcome.text}", flush=True)

    outcomes = asyncio.run(run_suite(static, wanted, say))
    if not given.json:
        print(table(outcomes))
    return int(any(outcome.kind == "wrong" for outcome in outcomes))


def table(outcomes: list[Outcome]) -> str:
    """The table of docs/checkpoint.md, and the reasons of refusals."""
    counts = collections.Counter(outcome.kind for outcome in outcomes)
    lines = [f"| of {len(outcomes)} | |", "|---|---|"]
    lines += [f"| {text} | {counts[kind]} |" for kind, text in ROWS.items()]
    reasons = collections.Counter(reason(outcome.text) for outcome in outcomes if outcome.kind == "refused")
    lines += ["", "| refused for | |", "|---|---|"]
    lines += [f"| {text} | {count} |" for text, count in reasons.most_common()]
    return "\n".join(lines)


def reason(text: str) -> str:
    """The first reason without what differs from test to test."""
    text = re.sub(r"^.*?saved:? *", "", text.split("\n")[0].split("; ")[0])
    text = re.sub(r"descriptor \d+", "descriptor", text)
    return re.sub(r"\d+", "N", text)[:100].strip()


if __name__ == "__main__":
    sys.exit(main())
