"""Random ads and Requirements of both sides, reproducible from a seed: names of every kind of value, missing ones,
ones that refer to the other ad or to themselves.
"""

from __future__ import annotations

import random

from pool.classad import ClassAd, parse_expr

_NAMES = ["a", "b", "c", "d", "s", "start", "limits", "x", "y", "nosuch", "Requirements", "time", "Big"]
_SCOPES = ["", "", "", "MY.", "TARGET.", "TARGET.", "my.", "other."]
_VALUES = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "1.5",
    "2.0",
    "-1",
    "true",
    "false",
    "undefined",
    "error",
    '"a"',
    '"A"',
    '"b"',
    '""',
]
_SCOPE_NAMES = ["My", "Target", "Other", "Self", "Parent"]
_SCOPE_VALUES = ["1", "[a = 2; start = true; x = b]", "[a = TARGET.a; b = MY.b]", "undefined", "a > 1"]
_SIGNS = ["==", "!=", "<", "<=", ">", ">=", "=?=", "=!=", "+", "-", "*", "/", "%"]
_CALLS = [
    "isUndefined({0})",
    "ifThenElse({0}, {1}, {2})",
    "strcat({0}, {1})",
    "member({0}, {{1, a, TARGET.b}})",
    "time() > {0}",
    'stringListMember({0}, "a,b")',
    "int({0})",
    "countMatches(MY.x, {{[v = 1], [v = {0}]}})",
    "countMatches(a > 1, {{[a = {0}]}})",
    "eval({0})",
    "({0} ?: {1})",
    "[a = {0}; q = a].q",
    "{{1, {0}}}[{1}]",
    "size(TARGET)",
    "unparse(a)",
]


class Ads:
    """A stream of requests and machines.

    Args:
        naming: the share of the ads that have attributes with the names of scopes, such as `My`.
    """

    def __init__(self, seed: int, naming: float = 0.0) -> None:
        self._chance = random.Random(seed)
        self._names_chance = random.Random(f"names {seed}")
        self._naming = naming

    def machine(self) -> ClassAd:
        return self._ad(own=("a", "b", "s", "start", "limits", "big"))

    def request(self) -> ClassAd:
        return self._ad(own=("b", "c", "d", "x", "start"))

    def expression(self, depth: int = 3) -> str:
        chance = self._chance
        kind = chance.random()
        if depth <= 0 or kind < 0.12:
            return self._leaf()
        if kind < 0.5:
            sign = chance.choice([" && ", " && ", " || "])
            return sign.join(self.expression(depth - 1) for _ in range(chance.randrange(2, 4)))
        if kind < 0.6:
            return f"({self.expression(depth - 1)})"
        if kind < 0.65:
            return f"!({self.expression(depth - 1)})"
        if kind < 0.7:
            return f"({self.expression(depth - 1)} ? {self.expression(depth - 2)} : {self.expression(depth - 2)})"
        if kind < 0.9:
            return f"{self._leaf()} {chance.choice(_SIGNS)} {self._leaf()}"
        return chance.choice(_CALLS).format(*[self._leaf() for _ in range(3)])

    def _leaf(self) -> str:
        if self._chance.random() < 0.4:
            return self._chance.choice(_VALUES)
        return self._chance.choice(_SCOPES) + self._chance.choice(_NAMES)

    def _ad(self, own: tuple[str, ...]) -> ClassAd:
        ad = ClassAd()
        for name in own:
            kind = self._chance.random()
            if kind < 0.2:
                continue
            depth = 0 if kind < 0.8 else 2
            text = self._chance.choice(_VALUES) if kind < 0.7 else self.expression(depth)
            ad[name] = parse_expr(text)
        if self._chance.random() < 0.97:
            ad["Requirements"] = parse_expr(self.expression())
        if self._chance.random() < 0.9:
            ad["Rank"] = parse_expr(self.expression(2))
        if self._naming and self._names_chance.random() < self._naming:
            for name in self._names_chance.sample(_SCOPE_NAMES, 2):
                ad[name] = parse_expr(self._names_chance.choice(_SCOPE_VALUES))
        return ad
