"""`python -m pool.jobs.description check FOLDER`: how many expected job ads hold, and which do not."""

from __future__ import annotations

import sys
from pathlib import Path

from pool.jobs.description.check import check_folder

_SHOWN = 3


def main(arguments: list[str]) -> int:
    """Run the check; the status is 1 when something does not hold, 2 for a wrong call."""
    if len(arguments) != 2 or arguments[0] != "check" or not Path(arguments[1]).is_dir():
        print("usage: python -m pool.jobs.description check FOLDER", file=sys.stderr)
        return 2
    results = list(check_folder(Path(arguments[1])))
    for result in results:
        for difference in result.differences[:_SHOWN]:
            print(f"{result.name}: {difference}")
        if len(result.differences) > _SHOWN:
            print(f"{result.name}: and {len(result.differences) - _SHOWN} more")
    held = sum(result.holds for result in results)
    print(f"{held} of {len(results)} hold")
    return 0 if held == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
