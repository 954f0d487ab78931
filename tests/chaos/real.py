"""Rounds against a pool of real processes. The pool stays from round to round; a round has its own jobs and faults."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos.real_cluster import Cluster
from tests.chaos.real_faults import RealKind, real_plan
from tests.chaos.real_round import RealRound


async def play(seed: int, rounds: int, directory: Path, span: float, *, go_on: bool) -> int:
    """Play the rounds of some seeds; 1 where a rule was broken."""
    began, broken, kinds, jobs, copies = time.monotonic(), [], Counter[str](), 0, 0
    cluster = Cluster(seed, directory)
    await cluster.start()
    print(f"six nodes run after {time.monotonic() - began:.1f} s; their logs are in {directory}", flush=True)
    for number in range(1, rounds + 1):
        done = await RealRound(cluster, real_plan(seed + number - 1, span)).play()
        kinds, jobs, copies = kinds + done.kinds, jobs + done.jobs, copies + done.copies
        if done.broken:
            broken.append(done.seed)
            print(f"seed {done.seed}, round {number}:", *done.broken, sep="\n    ")
            print("  the faults of the round (when, when planned, for how long, where):", *done.faults, sep="\n    ")
            print(f"  logs, reports and queues are in {directory / f'seed-{done.seed}'}", flush=True)
        told = f"{number} rounds, {kinds.total()} faults, {jobs} jobs, {copies} copies of them, {len(broken)} broken"
        print(f"{told}, {time.monotonic() - began:.0f} s", flush=True)
        if broken and not go_on:
            break
    for kind in RealKind:
        print(f"  {kinds[kind]:6}  {kind}")
    if broken:
        print(f"broken: {' '.join(str(seed) for seed in broken)}")
    return 1 if broken else 0


def main(arguments: list[str]) -> int:
    """Inside the namespaces: `SEED ROUNDS SECONDS DIRECTORY`, and `go-on` behind them."""
    seed, rounds, span, directory, *more = arguments
    return asyncio.run(play(int(seed), int(rounds), Path(directory), float(span), go_on="go-on" in more))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
