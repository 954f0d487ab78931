"""Random expressions of the ClassAd language, reproducible from a seed: for comparing two engines.

Every operator and nearly every function appears, with operands of every type and names of either ad. Functions that
depend on the clock, on chance or on the machine's users are left out, and so are selections from what a function
returns, which kill the reference.
"""

from __future__ import annotations

import random

MY = {
    "a": "7",
    "b": "a + 2.5",
    "s": '"Alpha,beta, gamma"',
    "u": "undefined",
    "e": "error",
    "t": "true",
    "l": '{1, a, "x", b, undefined}',
    "ad": "[a = 100; n = a + z; m = s; l = {n, a}]",
    "ads": "{[v = 1; w = a], [v = 2.5], [a = 3]}",
    "req": "TARGET.z > a && other",
    "loop": "loop2 + 1",
    "loop2": "loop",
}
TARGET = {"z": "12", "s": '"theirs"', "back": "a * 2", "mine": "TARGET.a", "f": "MY.z / 5.0", "gpu": "{[v = 9]}"}

_NAMES = ["a", "b", "s", "u", "e", "t", "l", "ad", "ads", "req", "z", "back", "nosuch", "loop", "A", "F"]
_SCOPES = ["MY.", "TARGET.", "my.", "Target.", "ad.", "other.", ".", "self."]
_LITERALS = [
    *("0", "1", "-1", "2", "7", "-3", "63", "64", "9223372036854775807", "-9223372036854775808", "4294967296"),
    *("0.0", "-0.0", "1.5", "-2.5", "1e10", "1e300", "0.1", "2.0", "3.7", 'real("inf")', 'real("nan")'),
    *("true", "false", "undefined", "error", "TRUE", "Undefined"),
    *('""', '"a"', '"A"', '"abc"', '"12"', '"1.5x"', '" a , b,,c "', '"x y"', '"1.2.10"', '"\\303\\251t\\303\\251"'),
    *('"a.b"', '"true"', '"<=\\"q\\""', '"A=1;B=2"', "\"A=1 B='x y'\"", '"u@d"', '"slot1@m"', '"0x1F"'),
    *('relTime("1+02:03:04")', "relTime(5)", "relTime(-1.5)", 'absTime("2021-03-04T05:06:07Z")'),
    *("{}", "{1,2,3}", '{"a","B"}', "{1.5,undefined}", "{error}", "{{1},{2}}", "[]", "[x=1;y=x+1]", "{true,1}"),
]
_BINARY = ["||", "&&", "|", "^", "&", "==", "!=", "=?=", "=!=", "is", "isnt", "<", "<=", ">", ">="]
_BINARY += ["<<", ">>", ">>>", "+", "-", "*", "/", "%"]
_PATTERNS = ['"a"', '"^A"', '"(b|c)+$"', '"[a-c]*"', '"x*"', '"(.)(.)"']
_PATTERNS += ['"\\\\\\\\d+"', '"("', '"\\\\\\\\bb"', '"a|"', '""']
_OPTIONS = ['""', '"i"', '"m"', '"g"', '"f"', '"ig"', '"fg"', '"x"']

# Function name to the kinds of its arguments: "n" anything, "l" a list, "p" a pattern, "o" options, "i" an integer.
_FUNCTIONS_BY_KINDS = {
    "n": "isUndefined isError isString isInteger isReal isList isClassAd isBoolean isAbsTime isRelTime int real string"
    " bool floor ceiling round toUpper toLower size interval getYear getMonth getDayOfYear getDayOfWeek getHours"
    " getMinutes getSeconds getDays splitTime splitUserName splitSlotName stringListSize stringListSum stringListAvg"
    " stringListMin stringListMax envV1ToV2 argsToList listToArgs eval nosuchfunction",
    "l": "sum avg min max",
    "nl": "member identicalMember evalInEachContext countMatches",
    "nn": "versioncmp versionLE versionGT versionEQ strcmp stricmp pow quantize split stringListMember"
    " stringListIMember stringListsIntersect stringListSubsetMatch stringListISubsetMatch mergeEnvironment",
    "nnn": "strcat join ifThenElse version_in_range",
    "nii": "substr",
    "cln": "anyCompare allCompare",
    "pno": "regexp",
    "plo": "regexpMember",
    "pnro": "regexps",
    "pnr": "replace replaceall",
    "pn": "stringList_regexpMember",
    "nf": "formatTime",
    "v": "unparse",
}
_FUNCTIONS = {name: kinds for kinds, names in _FUNCTIONS_BY_KINDS.items() for name in names.split()}
_LISTS = ["l", "ads", "{1,2.0,3}", '{"b","ab","c"}', "{a,z}", "{true}", "TARGET.gpu", "{}", "{u,1}"]


class Expressions:
    """A stream of expressions.

    Args:
        seed: the same seed gives the same stream.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def one(self, depth: int = 3) -> str:
        """An expression, at most so many operators deep."""
        chance = self._chance
        kind = chance.random()
        if depth <= 0 or kind < 0.2:
            return self._leaf()
        if kind < 0.5:
            return f"{self.one(depth - 1)} {chance.choice(_BINARY)} {self.one(depth - 1)}"
        if kind < 0.57:
            return f"({self.one(depth - 1)})"
        if kind < 0.62:
            return f"{chance.choice('-+!~')}{self.one(depth - 1)}"
        if kind < 0.67:
            return f"({self.one(depth - 1)}) ? {self.one(depth - 1)} : {self.one(depth - 1)}"
        if kind < 0.7:
            return f"{self._leaf()} ?: {self._leaf()}"
        if kind < 0.74:
            return f"({self.one(depth - 1)})[{self.one(depth - 2)}]"
        if kind < 0.77:
            return f"({self._leaf()}).{chance.choice(_NAMES)}"
        if kind < 0.8:
            return "{" + ",".join(self.one(depth - 2) for _ in range(chance.randrange(4))) + "}"
        return self._call(depth)

    def _leaf(self) -> str:
        chance = self._chance
        if chance.random() < 0.5:
            return chance.choice(_LITERALS)
        scope = chance.choice(_SCOPES) if chance.random() < 0.4 else ""
        return scope + chance.choice(_NAMES)

    def _call(self, depth: int) -> str:
        chance = self._chance
        name = chance.choice(list(_FUNCTIONS))
        kinds = _FUNCTIONS[name]
        arguments = [self._argument(kind, depth) for kind in kinds]
        if chance.random() < 0.15 and name != "formatTime":
            arguments = arguments[: chance.randrange(len(arguments) + 1)]
        return f"{name}({', '.join(arguments)})"

    def _argument(self, kind: str, depth: int) -> str:
        chance = self._chance
        if kind == "v":
            return chance.choice(_NAMES)
        if chance.random() < 0.12:
            kind = "n"
        if kind == "p":
            return chance.choice(_PATTERNS)
        if kind == "o":
            return chance.choice(_OPTIONS)
        if kind == "r":
            return chance.choice(['"<\\\\0>"', '"x"', '"\\\\1"', '""'])
        if kind == "c":
            return chance.choice(['"<"', '"=="', '"is"', '"isnt"', '"!="', '">="', '"?"'])
        if kind == "f":
            return chance.choice(['"%Y-%m-%d %H:%M:%S"', '"%j %a %B %y %%"', '"%c"', '"%U %W %V %G"'])
        if kind == "i":
            return chance.choice(["0", "1", "-1", "2", "5", "-3", "100", "undefined", "a"])
        if kind == "l":
            return chance.choice(_LISTS)
        return self.one(depth - 1)
