"""The digits of pi from points in a square, with the calls of a function spread over a pool."""

from random import Random

from pool import Executor

POINTS = 200_000


def inside(seed: int) -> int:
    """How many of POINTS points of the unit square lie in the circle's quarter."""
    draw = Random(seed).random
    return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(POINTS))


if __name__ == "__main__":
    calls = 20
    with Executor(max_workers=4) as executor:
        hits = sum(executor.map(inside, range(calls)))
    print(f"pi is about {4 * hits / (calls * POINTS):.3f}, from {calls} calls")
