"""Where names are looked up: own ad, surroundings, the other side of a match, and what depends on itself."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, Expr, compiling, evaluate, parse_expr
from tests.classad.helpers import ad, value

MY = {
    "a": "1",
    "b": "a + 1",
    "both": '"mine"',
    "ref": "TARGET.both",
    "nest": "[p = both; q = TARGET.both; r = MY.both; s = mem; a = 100; t = a; u = parent.a]",
    "list": "{both, mem, a}",
    "lots": "{[v = 1; w = a], [v = 2], 5, undefined}",
}
TARGET = {"mem": "16", "both": '"theirs"', "back": "b", "a": "100", "theirs": "TARGET.a", "mine": "MY.a"}


@pytest.mark.parametrize(
    ("expression", "alone", "matched"),
    [
        ("a", "1", "1"),
        ("B", "2", "2"),
        ("MY.both", '"mine"', '"mine"'),
        ("TARGET.both", "undefined", '"theirs"'),
        ("other.both", "undefined", '"theirs"'),
        ("mem", "undefined", "16"),
        ("MY.mem", "undefined", "undefined"),
        ("TARGET.b", "undefined", "undefined"),
        ("back", "undefined", "2"),
        ("TARGET.theirs", "undefined", "1"),
        ("TARGET.mine", "undefined", "100"),
        ("TARGET.MY.a", "undefined", "100"),
        ("ref", "undefined", '"theirs"'),
        (".a", "1", "undefined"),
        ("nest.p", '"mine"', '"mine"'),
        ("nest.q", "undefined", '"theirs"'),
        ("nest.r", '"mine"', '"mine"'),
        ("nest.s", "undefined", "undefined"),
        ("nest.t", "100", "100"),
        ("nest.u", "1", "1"),
        ("nest.b", "2", "2"),
        ("list[1]", "undefined", "16"),
        ("lots.v", "{ 1,2,error,undefined }", "{ 1,2,error,undefined }"),
        ("lots[0].w", "1", "1"),
        ("isClassAd(MY)", "true", "true"),
        ("isClassAd(TARGET)", "false", "true"),
        ('MY["b"]', "2", "2"),
        ("nosuch.a", "undefined", "undefined"),
        ('"text".a', "error", "error"),
        ("currenttime", "1700000000", "1700000000"),
    ],
)
def test_names(expression: str, alone: str, matched: str) -> None:
    assert value(expression, MY) == alone
    assert value(expression, MY, TARGET) == matched


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(("a", "undefined"), ("s", "undefined"), ("isUndefined(a)", "true"), ("f", "undefined"), ("g", "false")),
        *(
            ("h", "true"),
            ("o", "undefined"),
            ("y", "1"),
            ("m", "undefined"),
            ("d", "42"),
            ("n", "5"),
            ("e", "undefined"),
        ),
    ],
)
def test_what_depends_on_itself_is_undefined(expression: str, wanted: str) -> None:
    circular = {
        **{"a": "b", "b": "c", "c": "a", "s": "s + 1", "f": "f && true", "g": "false && g", "h": "true || h"},
        **{"o": "[o = o].o", "y": "[y = 1; z = y].z", "m": "MY.m", "d": "21 * 2", "n": "n ?: 5", "e": 'eval("e")'},
    }
    assert value(expression, circular) == wanted


def test_two_ads_that_ask_each_other_end() -> None:
    assert value("x", {"x": "TARGET.x"}, {"x": "TARGET.x"}) == "undefined"


def test_an_attribute_called_like_a_scope_is_an_attribute() -> None:
    assert value("target.mem", {"Target": "[mem = 3]"}, {"mem": "16"}) == "3"
    assert value("my.x", {"My": "[x = 4]", "x": "5"}) == "4"


def test_the_value_of_a_nested_ad_stands_by_itself() -> None:
    found = evaluate(parse_expr("nest"), ad(MY), ad(TARGET))
    assert isinstance(found, ClassAd)
    assert found.value("q") == "theirs"
    assert found.value("t") == 100


def test_my_and_target_are_the_ads_themselves() -> None:
    my, target = ad(MY), ad(TARGET)
    assert evaluate(parse_expr("MY"), my, target) is my
    assert evaluate(parse_expr("TARGET"), my, target) is target


def test_without_a_time_the_clock_is_undefined() -> None:
    assert value("time()", now=None) == "undefined"
    assert value("time() + 1", now=41.9) == "42"


def test_only_an_ad_that_has_such_an_attribute_makes_a_scopes_name_ambiguous() -> None:
    from pool.classad import names

    before = set(names.SHADOWED)
    parse_expr("size(TOPLEVEL) + LEFT.x").compile()
    ClassAd().get("right")
    assert before == names.SHADOWED


def _refused(*arguments: object) -> object:
    raise AssertionError("looked up in the long way")


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("TARGET.mem", 16),
        ("MY.a", 1),
        ("TARGET.mem >= 16", True),
        ('other.both == "theirs"', True),
        ("a < TARGET.mem", True),
        ("TARGET.mem > a", True),
    ],
)
def test_an_ad_that_uses_a_scopes_name_makes_others_no_slower(
    monkeypatch: pytest.MonkeyPatch, expression: str, found: object
) -> None:
    """Any user may have such an ad. His references are looked up in the long way, everybody else's in the short one."""
    monkeypatch.setattr(compiling, "bare", _refused)
    for general in ("_with_string", "_with_integer", "_comparison"):
        monkeypatch.setattr(compiling, general, lambda *_: _refused)
    theirs = ad({"Target": "[mem = 3]", "Other": "1", "My": "1", "Self": "1"})
    compiled = Expr(parse_expr(expression).node)
    assert evaluate(compiled, ad({"a": "1"}), ad({"mem": "16", "both": '"theirs"'})) == found
    with pytest.raises(AssertionError, match="in the long way"):
        evaluate(compiled, theirs, ad({"mem": "16", "both": '"theirs"'}))
