"""Patterns: both engines against Python's where Python's is safe, and evil ones that must end."""

from __future__ import annotations

import random
import re

import pytest

from pool.classad import ERROR, ClassAd, evaluate, parse_expr
from pool.classad.errors import EvaluationFailed
from pool.classad.patterns import Pattern, PatternError, compiled_pattern
from pool.classad.patterns.automaton import PatternProgram
from pool.classad.patterns.backtracking import NEVER, anchored, compiled, cost
from pool.classad.patterns.syntax import read
from tests.classad.helpers import ending


def free(_steps: int) -> None:
    """A purse without bottom."""


def spans(pattern: str, text: str, flags: str = "") -> tuple[int, ...] | None:
    return compiled_pattern(pattern, flags).search(text, free)


@pytest.mark.parametrize(
    ("pattern", "text", "flags", "wanted"),
    [
        ("b+", "abbc", "", (1, 3)),
        ("(a)|(b)", "b", "", (0, 1, -1, -1, 0, 1)),
        ("A", "xa", "i", (1, 2)),
        ("(?i)A", "xa", "", (1, 2)),
        ("a(?i:B)c", "aBc", "", (0, 3)),
        ("a(?i)b|C", "c", "", (0, 1)),
        ("^b", "a\nb", "", None),
        ("^b", "a\nb", "m", (2, 3)),
        ("a$", "a\n", "", (0, 1)),
        (r"a\z", "a\n", "", None),
        ("a.b", "a\nb", "", None),
        ("a.b", "a\nb", "s", (0, 3)),
        ("a b # c\n c", "abc", "x", (0, 3)),
        (r"\d{2,3}?", "1234", "", (0, 2)),
        (r"\bfoo\b", "a foo b", "", (2, 5)),
        ("[[:alpha:]_]+", "12ab_3", "", (2, 5)),
        ("[^]a]", "]ab", "", (2, 3)),
        ("[a-c-]+", "x-b", "", (1, 3)),
        (r"[\d\-x]+", "a1-x", "", (1, 4)),
        (r"\Q.*\E+", "a.**", "", (1, 4)),
        (r"\x41\x{42}\103", "ABC", "", (0, 3)),
        (r"(?<n>a)\k<n>\1", "aaa", "", (0, 3, 0, 1)),
        (r"(?P<n>a)\g{1}", "aa", "", (0, 2, 0, 1)),
        (r"(?<=a)b(?!c)", "abcab", "", (4, 5)),
        (r"(?<=a|bc)d", "bcd", "", (2, 3)),
        ("(?>a+)b", "aab", "", (0, 3)),
        ("a++a", "aa", "", None),
        ("a{,2}", "a{,2}", "", (0, 5)),
        ("x{2", "x{2", "", (0, 3)),
        (r"\R", "\r\n", "", (0, 2)),
        ("(?#note)a", "a", "", (0, 1)),
        ("", "a", "", (0, 0)),
        ("é", "xé", "", (1, 3)),
    ],
)
def test_matches(pattern: str, text: str, flags: str, wanted: tuple[int, ...] | None) -> None:
    assert spans(pattern, text, flags) == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(",
            ")",
            "a)",
            "[a",
            "*a",
            "a**",
            "+",
            "?",
            "[z-a]",
            r"\1",
            r"(a)\2",
            "a{3,2}",
            "a{99999}",
            "\\",
            r"\y",
            "(?<a",
        ),
        *("(?<n>a)(?<n>b)", "(?z)", "[[:foo:]]", r"\x{100}", r"\k<no>", "(*FAIL)", r"(?P>n)", "(" * 100 + ")" * 100),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern, "")


def random_pattern(chance: random.Random, depth: int = 3) -> str:
    kind = chance.random()
    if depth == 0 or kind < 0.35:
        return chance.choice(["a", "b", "c", ".", "[ab]", "[^a]", "^", "$", r"\b", "(?:ab)"])
    if kind < 0.55:
        return random_pattern(chance, depth - 1) + random_pattern(chance, depth - 1)
    if kind < 0.7:
        return f"({random_pattern(chance, depth - 1)}|{random_pattern(chance, depth - 1)})"
    inner = chance.choice(["a", "b", "[ab]", "(ab|c)", "(a|b)"])
    return inner + chance.choice(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}"])


def test_both_engines_agree_with_python() -> None:
    chance = random.Random(5)
    for _ in range(600):
        pattern = random_pattern(chance)
        text = "".join(chance.choice("abc") for _ in range(chance.randrange(9))).encode()
        tree, groups = read(pattern.encode(), "")
        wanted = re.compile(pattern.encode()).search(text)
        edges = None if wanted is None else tuple(edge for span in wanted.regs for edge in span)
        engine = compiled(tree).search(text)
        assert (None if engine is None else engine.regs) == (None if wanted is None else wanted.regs), pattern
        machine = PatternProgram(tree, groups).search(text, 0, free)
        assert machine == edges, pattern


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|aa)+$", "(.*)*x", "((a*)*)*b", "(x+x+)+y", "a?" * 30 + "a" * 30 + "b", ".*.*.*.*=", "(a|b|ab)*c"],
)
def test_patterns_that_backtrack_forever_end(pattern: str) -> None:
    with ending():
        assert spans(pattern, "a" * 300 + "!") is None


@pytest.mark.parametrize("pattern", [r"(a*)*\1b", "(?=(a+)+$)b", "(?>(a+)+)b.*.*.*.*", "((a{0,100}){0,100}){0,100}"])
def test_what_needs_backtracking_and_may_take_forever_is_given_up(pattern: str) -> None:
    with pytest.raises(EvaluationFailed):
        spans(pattern, "a" * 300 + "!")


def test_work_is_paid_for() -> None:
    paid: list[int] = []
    assert compiled_pattern("(a+)+$").search("a" * 200 + "b", paid.append) is None
    assert sum(paid) > 200

    def poor(_steps: int) -> None:
        raise EvaluationFailed("no more")

    with pytest.raises(EvaluationFailed):
        compiled_pattern("a").search("a", poor)


def test_what_a_pattern_could_cost() -> None:
    def ways(pattern: str) -> int:
        return cost(read(pattern.encode(), "")[0], 50)

    assert ways("abc") == 1
    assert ways("a*b*") == 52 * 52
    assert ways("(a+)+") == NEVER
    assert ways("a|b|c") == 3
    assert anchored(read(b"(^a)", "")[0])
    assert not anchored(read(b"a^", "")[0])


@pytest.mark.parametrize(
    "pattern", ["\\k<--5>", "\\k{--5}", "\\g{--5}", "\\k<²>", "\\g²", "\\k<" + "9" * 5000 + ">", "\\" + "9" * 5000]
)
def test_a_reference_by_no_number_is_a_pattern_error(pattern: str) -> None:
    """A ValueError of Python's would end the turn of the role that evaluates a job's Requirements."""
    quoted = pattern.replace("\\", "\\\\")
    assert evaluate(parse_expr(f'regexp("(a){quoted}", "aa")'), ClassAd()) is ERROR
