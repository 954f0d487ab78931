"""`python -m tests.chaos --virtual --seed N --rounds N`: rounds of random faults against a pool, held to four rules.

Each round is one seed, and the same seed is the same round again. Ends with status 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from tests.chaos.faults import plan
from tests.chaos.virtual import run_round

#: A line is shown after so many rounds.
TELL_EVERY = 100


def outcome(seed: int) -> tuple[int, int, list[str]]:
    """A round: its seed, its faults, and what broke a rule. Whatever the pool raises breaks one."""
    logging.disable(logging.CRITICAL)
    try:
        return seed, len(plan(seed).faults), run_round(seed)
    except Exception:
        return seed, len(plan(seed).faults), [f"the round could not be played: {traceback.format_exc()}"]


def main() -> int:
    """Play what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Random faults, and four rules.")
    parser.add_argument("--virtual", action="store_true", help="on the virtual clock; the only pool there is yet")
    parser.add_argument("--seed", type=int, default=0, help="the first round's; the others count on from it")
    parser.add_argument("--rounds", type=int, default=100, help="how many")
    parser.add_argument("--processes", type=int, default=1, help="at a time")
    parser.add_argument("--show", action="store_true", help="show the plan of the first round, and play none")
    given = parser.parse_args()
    if not given.virtual and not given.show:
        parser.error("--virtual is missing: a pool of real processes is not built yet")
    if given.show:
        _show(given.seed)
        return 0
    began, faults, broken = time.monotonic(), 0, []
    seeds = iter(range(given.seed, given.seed + given.rounds))
    with ProcessPoolExecutor(given.processes) as workers:
        done = 0
        while batch := list(islice(seeds, TELL_EVERY)):
            for seed, count, found in workers.map(outcome, batch):
                faults += count
                if found:
                    broken.append(seed)
                    print(f"seed {seed}:", *found, sep="\n    ", flush=True)
            done += len(batch)
            rate = done / (time.monotonic() - began)
            print(f"{done} rounds, {faults} faults, {len(broken)} broken, {rate:.1f} a second", flush=True)
    if broken:
        print(f"broken: {' '.join(str(seed) for seed in broken)}")
    return 1 if broken else 0


def _show(seed: int) -> None:
    given = plan(seed)
    print(f"seed {seed}: leases of {given.lease:g} s, {given.slots} slots on each machine")
    for name, jobs in given.jobs.items():
        print(f"  {name}: jobs of {', '.join(f'{seconds:.1f} s' for seconds in jobs)}")
    for fault in given.faults:
        print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
