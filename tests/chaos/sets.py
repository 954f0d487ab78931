"""`python -m tests.chaos.sets --seed N --rounds N`: kill -9 in the middle of sets, and of the way of their images."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
import traceback

from tests.e2e import kills, support
from tests.e2e.kills import Kill, Struck

ABOUT = """\
A job of two or three parts on three real nodes talks TCP all the time in a network of its own. In each round a node, a
relay, a keeper and the submit side's node are killed once while a set is made, while its images go to the submit side,
and while they come back to other machines; a seed draws the points within these moments. The job has to go on from its
last committed set, and every exchange has to be there once. If not, the status is 1.

  python -m tests.chaos.sets --seed 1 --rounds 3     some five minutes
"""


async def play(nodes: support.Nodes, seed: int, victims: list[str], moments: list[str]) -> list[str]:
    """A round; what broke a rule."""
    chance = random.Random(seed)
    broken = []
    for victim, moment in itertools.product(victims, moments):
        kill, parts = Kill(victim, moment, chance.uniform(0.0, 0.8)), chance.choice([2, 3])
        name = f"seed {seed}, {parts} parts: {victim}, {moment}, {kill.share:.2f}"
        home = nodes.directory(f"{victim.replace(' ', '-')}-{moment}-{seed}")
        began = time.monotonic()
        try:
            await Struck(nodes, home, parts, seed).plays(kill)
        except Exception:
            broken.append(name)
            print(f"{name}: {traceback.format_exc()}", *(node.text[-3000:] for node in nodes.all), sep="\n", flush=True)
        else:
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return broken


def main() -> int:
    """Play what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.sets", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first round's; the others count on from it")
    parser.add_argument("--rounds", type=int, default=1, help="how many")
    parser.add_argument("--victim", action="append", choices=kills.VICTIMS, help="this one only; may be repeated")
    parser.add_argument("--moment", action="append", choices=kills.MOMENTS, help="this one only; may be repeated")
    given = parser.parse_args()
    victims, moments = given.victim or list(kills.VICTIMS), given.moment or list(kills.MOMENTS)
    broken = []
    for seed in range(given.seed, given.seed + given.rounds):
        with support.running(kills.start) as nodes:
            broken += asyncio.run(play(nodes, seed, victims, moments))
    print(f"{given.rounds * len(victims) * len(moments)} kills, {len(broken)} broken", *broken, sep="\n  ")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
