"""Pi by throwing darts, with nothing but Python: the chance generator's state is all that matters."""

import random

chance, inside = random.Random(3), 0
for step in range(120):
    for _ in range(20000):
        x, y = chance.random(), chance.random()
        inside += x * x + y * y < 1
    print(step, inside, flush=True)
