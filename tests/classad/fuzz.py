"""Compare the language with the reference engine for as long as one likes:

python -m tests.classad.fuzz [SECONDS [SEED]]
"""

from __future__ import annotations

import sys
import time
from typing import Any

from pool.classad import ClassAd, ParseError, evaluate, parse_expr
from tests.classad.expressions import MY, TARGET, Expressions
from tests.classad.reference import Reference, load


def ad(attributes: dict[str, str]) -> ClassAd:
    return ClassAd({name: parse_expr(text) for name, text in attributes.items()})


def ours(text: str, my: ClassAd, target: ClassAd | None) -> Any:
    try:
        return evaluate(parse_expr(text), my, target, now=1_700_000_000)
    except ParseError:
        return "refused"


def differences(module: Any, seed: int, count: int) -> list[str]:
    """Expressions of this seed on which the engines disagree, with both values."""
    found: list[str] = []
    stream = Expressions(seed)
    sides = [(TARGET, ad(TARGET)), (None, None)]
    my = ad(MY)
    references = [Reference(module, MY, given) for given, _ in sides]
    for index in range(count):
        text = stream.one()
        reference, (_, target) = references[index % 2], sides[index % 2]
        theirs, mine = reference.value(text), ours(text, my, target)
        if not reference.agrees(theirs, mine):
            found.append(f"{text}   {'with' if target else 'without'} target: reference {theirs!r}, ours {mine!r}")
    return found


def main() -> int:
    module = load()
    if module is None:
        sys.stderr.write("the reference is not installed\n")
        return 2
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    end, tried, wrong = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        found = differences(module, seed, 500)
        for line in found:
            sys.stdout.write(f"seed {seed}: {line}\n")
        tried, wrong, seed = tried + 500, wrong + len(found), seed + 1
    sys.stdout.write(f"{tried} expressions, {wrong} differ\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
