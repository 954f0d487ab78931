#!/usr/bin/env python3
"""Follow the Hénon map, x' = 1 - a x^2 + y, y' = b x, from (0, 0): where does it go?

    henon.py A B

Prints the largest Lyapunov exponent over 100,000 steps (above zero: chaos), or after how many steps the point
escaped.
"""

import math
import sys

STEPS = 100_000


def follow(a, b):
    """The fate of the point, in words."""
    x = y = 0.0
    along, across = 1.0, 0.0
    stretched = 0.0
    for step in range(1, STEPS + 1):
        along, across = -2 * a * x * along + across, b * along
        x, y = 1 - a * x * x + y, b * x
        if abs(x) > 1e6:
            return f"escapes after {step} steps"
        length = math.hypot(along, across)
        stretched += math.log(length)
        along, across = along / length, across / length
    exponent = stretched / STEPS
    return f"{'chaos' if exponent > 0 else 'settles'}, exponent {exponent:+.3f}"


if len(sys.argv) != 3:
    sys.exit("usage: henon.py A B")
a, b = map(float, sys.argv[1:])
print(f"a={a} b={b}: {follow(a, b)}")
