"""`python -m tests.chaos --seed N --rounds N`: rounds of random faults against a pool, held to four rules.

Against real processes, or with `--virtual` on the virtual clock. Each round is one seed, and the same seed is the same
plan again. Ends with status 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from tests.chaos.faults import plan
from tests.chaos.inside import lacking, run_inside
from tests.chaos.real_faults import LEASE, SPAN, real_plan
from tests.chaos.virtual import run_round

ABOUT = """\
Random faults against a pool of two schedds and three startds, and the four rules of the start contract.

  python -m tests.chaos --seed 1 --rounds 20             real nodes, keepers and jobs; needs root
  python -m tests.chaos --virtual --seed 1 --rounds 500  the same roles on the virtual clock
  python -m tests.chaos --seed 7 --show                  what a seed stands for

Real nodes run in network namespaces between which packets are lost, late and cut. Nodes, keepers, fork servers and jobs
are killed and stopped, machines start again, disks fill up. Jobs report over a socket that no fault reaches. A round
ends when all of its jobs have. Then no job may be lost, no two copies may have run at the same time, each end is
reported once, and each output is what the job wrote. Where a rule is broken, the seed, the faults in their order and
the place of all logs are shown, and the status is 1.
"""
#: A line is shown after so many rounds.
TELL_EVERY = 100


def outcome(seed: int) -> tuple[int, int, list[str]]:
    """A round: its seed, its faults, and what broke a rule. Whatever the pool raises breaks one."""
    logging.disable(logging.CRITICAL)
    gc.set_threshold(100_000)  # a round's garbage is little, and looking for it again and again is not
    try:
        return seed, plan(seed).troubles, run_round(seed)
    except Exception:
        return seed, plan(seed).troubles, [f"the round could not be played: {traceback.format_exc()}"]


def main() -> int:
    """Play what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--virtual", action="store_true", help="simulated machines on the virtual clock")
    parser.add_argument("--seed", type=int, default=0, help="the first round's; the others count on from it")
    parser.add_argument("--rounds", type=int, default=100, help="how many")
    parser.add_argument("--show", action="store_true", help="show the plan of the first round, and play none")
    virtual = parser.add_argument_group("with --virtual")
    virtual.add_argument("--processes", type=int, default=1, help="rounds at a time")
    real = parser.add_argument_group("without --virtual")
    real.add_argument("--seconds", type=float, default=SPAN, help="for how long the faults of a round begin")
    real.add_argument("--directory", type=Path, help="where logs and what shows a fault are kept")
    real.add_argument("--go-on", action="store_true", help="play the other rounds, too, when one broke a rule")
    given = parser.parse_args()
    if given.show:
        (_show if given.virtual else _show_real)(given)
        return 0
    return _play_virtual(given) if given.virtual else _play_real(given)


def _play_real(given: argparse.Namespace) -> int:
    if missing := lacking():
        print(f"this machine lacks {missing}; --virtual needs nothing", file=sys.stderr)
        return 2
    directory = given.directory or Path(tempfile.mkdtemp(prefix="poolnode-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    words = [str(given.seed), str(given.rounds), str(given.seconds), str(directory.absolute())]
    return run_inside("tests.chaos.real", [*words, *(["go-on"] if given.go_on else [])])


def _play_virtual(given: argparse.Namespace) -> int:
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


def _show(asked: argparse.Namespace) -> None:
    given = plan(asked.seed)
    print(f"seed {asked.seed}: leases of {given.lease:g} s, {given.slots} slots on each machine")
    for name, jobs in given.jobs.items():
        print(f"  {name}: jobs of {', '.join(f'{seconds:.1f} s' for seconds in jobs)}")
    for fault in given.faults:
        print(f"  {fault}")


def _show_real(asked: argparse.Namespace) -> None:
    given = real_plan(asked.seed, asked.seconds)
    print(f"seed {asked.seed}: leases of {LEASE:g} s")
    for name, jobs in given.jobs.items():
        told = (f"{job.ticks / 10:.1f} s at {job.at:.1f} s{' saved' * job.checkpoint}" for job in jobs)
        print(f"  {name}: jobs of {', '.join(told)}")
    for fault in given.faults:
        print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
