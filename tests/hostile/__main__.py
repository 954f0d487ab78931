"""`python -m tests.hostile`: attack, and say what went wrong."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time

from pool.testing import run_virtual
from tests import hostile
from tests.hostile import real, simulated
from tests.hostile.attack import Attack


def main() -> int:
    """Attack, and say what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=(hostile.__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000, help="of each method by each caller")
    parser.add_argument("--only", default="", help="methods whose names hold this")
    parser.add_argument("--real", action="store_true", help="nodes as root runs them, in place of simulated ones")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    began = time.monotonic()
    if given.real and not given.inside:
        if os.geteuid() != 0:
            parser.error("--real needs root, for it has users of its own")
        with real.two_users() as command:
            return subprocess.run([*command, "-m", "tests.hostile", "--inside", *sys.argv[1:]], check=False).returncode
    run: Attack
    if given.real:
        run = asyncio.run(real.attack(given.seed, given.calls, given.only))
    else:
        run = run_virtual(simulated.attack(given.seed, given.calls, given.only))
    print("\n".join(sorted(set(run.wrong))) or "nothing went wrong")
    print(f"{run.made} calls, {run.answered} answered, {time.monotonic() - began:.0f} s")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
