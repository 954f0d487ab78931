"""`python -m pool.classad check FILE...`: try files of cases and print what does not hold.

The exit status is 0 when every case holds, 1 when one does not, 2 when a file cannot be read.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pool.classad.check import CaseTally, check, table
from pool.classad.functions.users import allow_user_home
from pool.outside import OutsideWorld

USAGE = "usage: python -m pool.classad check FILE...\n"


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "check":
        sys.stderr.write(USAGE)
        return 2
    os.environ["TZ"] = "UTC"
    time.tzset()
    allow_user_home(True)
    now = OutsideWorld().wall()
    tallies: dict[str, CaseTally] = {}
    for name in arguments[1:]:
        try:
            with open(name, encoding="utf-8") as file:
                check(file, now, tallies)
        except OSError as error:
            sys.stderr.write(f"cannot read cases {name}: {error.strerror}\n")
            return 2
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
            sys.stderr.write(f"cannot read cases {name}: no file of cases ({error!r})\n")
            return 2
    sys.stdout.write(table(tallies))
    return 1 if any(tally.failed for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
