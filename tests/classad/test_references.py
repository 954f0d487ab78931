"""The references of an expression."""

from __future__ import annotations

import pytest

from pool.classad import parse_expr
from pool.classad.references import external, internal
from tests.classad.helpers import ad

AD = {
    "a": "b + 1",
    "b": "2",
    "c": "a + ext",
    "d": "TARGET.ext2 + c",
    "ad": "[p = 1; q = ext3]",
    "l": "{a, ext4}",
    "loop": "loop + far",
}


@pytest.mark.parametrize(
    ("text", "inside", "outside", "outermost"),
    [
        ("c", "a b c", "ext", "ext"),
        ("d", "a b c d", "TARGET.ext2 ext", "TARGET ext"),
        ("f(a, nosuch)", "a b", "nosuch", "nosuch"),
        ("MY.a", "a b", "", ""),
        ("MY.nosuch", "", "nosuch", "nosuch"),
        ("TARGET.x.y", "", "TARGET.x.y", "TARGET"),
        ("ad.p", "ad", "", ""),
        ("ad.zz", "ad", "zz", "zz"),
        ("l[0]", "a b l", "ext4", "ext4"),
        ("[q = a; r = nosuch].r", "", "nosuch", "nosuch"),
        ("CurrentTime + time()", "", "", ""),
        ("loop", "loop", "far", "far"),
        ("1 + 2", "", "", ""),
    ],
)
def test_through_an_ad(text: str, inside: str, outside: str, outermost: str) -> None:
    expression, holder = parse_expr(text), ad(AD)
    assert internal(expression, holder) == frozenset(inside.split())
    assert external(expression, holder) == frozenset(outside.split())
    assert external(expression, holder, full=False) == frozenset(outermost.split())


def test_what_the_text_itself_mentions() -> None:
    expression = parse_expr("TARGET.Memory >= RequestMemory && MY.ad.x > f(Disk, {Cpus})")
    assert expression.references() == {"Memory", "RequestMemory", "ad", "x", "Disk", "Cpus"}


def test_an_evil_expression_gives_no_references_but_ends() -> None:
    evil = ad({f"a{number}": f"[x = a{number + 1}.x + a{number + 1}.x]" for number in range(60)})
    internal(parse_expr("a0.x"), evil)
    external(parse_expr("a0.x"), evil)
