#!/usr/bin/env python3
"""How many of many random walks in the plane come home within a hundred steps: a long job that never saves itself.

    walks.py BLOCKS

Prints a line for every block of walks. Knows nothing of a pool: all that it has found so far is in its memory.
"""

import random
import sys

WALKS, STEPS = 2500, 100


def comes_home(chance):
    x = y = 0
    for _ in range(STEPS):
        way = chance.randrange(4)
        x += (way == 0) - (way == 1)
        y += (way == 2) - (way == 3)
        if not x and not y:
            return True
    return False


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("usage: walks.py BLOCKS")
    chance, home = random.Random(1997), 0
    for block in range(1, int(sys.argv[1]) + 1):
        home += sum(comes_home(chance) for _ in range(WALKS))
        print(f"{home} of {block * WALKS} walks came home: {home / block / WALKS:.4f}", flush=True)


if __name__ == "__main__":
    main()
