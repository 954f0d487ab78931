"""Every built-in function: what it does, with which arguments, and what it makes of the wrong ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from pool.classad.functions import TABLE
from pool.classad.functions.users import allow_user_home
from tests.classad.helpers import value

MY = {"x": "3 + y", "y": "4", "l": "{1, 2}", "a1": "[v = 1; n = w]", "a2": "[v = 2]", "req": "v >= 2", "w": "9"}


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


CASES = {
    "types": [
        *(
            ("isUndefined(nosuch)", "true"),
            ("isError(1/0)", "true"),
            ('isString("")', "true"),
            ("isInteger(1.0)", "false"),
        ),
        *(("isReal(1.0)", "true"), ("isBoolean(1)", "false"), ("isList({})", "true"), ("isClassAd([])", "true")),
        *(("isAbsTime(absTime(0))", "true"), ("isRelTime(relTime(0))", "true"), ('isRelTime(relTime("1"))', "false")),
    ],
    "control": [
        *(
            ("ifThenElse(1, 2, 1/0)", "2"),
            ("ifThenElse(0.0, 1/0, 3)", "3"),
            ("ifThenElse(undefined, 1, 2)", "undefined"),
        ),
        *(('ifThenElse("a", 1, 2)', "error"), ('eval("x * 2")', "14"), ('eval("1 +")', "error"), ("eval(5)", "5")),
        *(
            ('eval("eval(\\"y\\")")', "4"),
            ("unparse(x)", '"3 + y"'),
            ("unparse(nosuch)", '""'),
            ("unparse(1)", "error"),
        ),
        *(
            ("debug(x)", "7"),
            ("unresolved(req)", '"v"'),
            ('unresolved(req, "^V$")', "true"),
            ('unresolved(x, "v")', "false"),
        ),
        *(("unresolved(nosuch)", "undefined"), ('unresolved(req, "(")', "error"), ("unresolved(1)", "error")),
    ],
    "numbers": [
        *(("floor(-2.5)", "-3"), ('ceil("2.1")', "3"), ("ceiling(7)", "7"), ("round(2.5)", "2"), ("round(3.5)", "4")),
        *(
            ("floor(1e30)", "-9223372036854775808"),
            ("floor(undefined)", "error"),
            ("pow(2, 10)", "1024"),
            ("pow(2, -1)", "0.5"),
        ),
        *(("pow(2.0, 3)", "8.0"), ("pow(10, 400)", "-9223372036854775808"), ("pow(0.0, -1)", 'real("INF")')),
        *(("pow(-8, 0.5)", 'real("NaN")'), ("pow(1e300, 2)", 'real("INF")'), ('pow("a", 2)', "error")),
        *(("quantize(3, 8)", "8"), ("quantize(9, 8)", "16"), ("quantize(3.5, 2)", "4.0"), ("quantize(-3, 2)", "-2")),
        *(
            ("quantize(3, {1, 4})", "4"),
            ("quantize(9, {1, 4})", "12"),
            ("quantize(3, {})", "3"),
            ("quantize(3, 0)", "3"),
        ),
        *(('quantize(3, {"a"})', "error"), ("quantize(5, 2.5)", "5.0"), ("random(1)", "0"), ("random(0)", "error")),
        *(("random() < 1.0", "true"), ("isReal(random(2.5))", "true"), ('random("a")', "error")),
    ],
    "conversion": [
        *(
            ('int("12x")', "12"),
            ("int(-2.9)", "-2"),
            ("int(true)", "1"),
            ('int("x")', "error"),
            ("int(undefined)", "undefined"),
        ),
        *(('real("0x10")', "16.0"), ('real("-inf")', 'real("-INF")'), ("real(true)", "1.0"), ("real({})", "error")),
        *(
            ("string(1.5)", '"1.500000000000000E+00"'),
            ("string({1,x})", '"{ 1,x }"'),
            ("string(undefined)", "undefined"),
        ),
        *(("string(relTime(3661))", '"01:01:01"'), ("string(absTime(0, 0))", '"1970-01-01T00:00:00-00:00"')),
        *(('bool("TRUE")', "true"), ('bool("yes")', "undefined"), ("bool(0.0)", "false"), ("bool({})", "error")),
        *(("absTime(1000, 3600)", 'absTime("1970-01-01T01:16:40+01:00")'), ("absTime(true)", "error")),
        *(("isAbsTime(absTime())", "true"), ("relTime(5)", "relTime(5.0)"), ("relTime(absTime(7))", "relTime(7.0)")),
        *(("absTime(0, {})", "error"), ("relTime(true)", "error"), ("absTime(undefined)", "undefined")),
    ],
    "strings": [
        *(('strcat("a", 1, true, {1})', '"a1true{ 1 }"'), ("strcat()", '""'), ('strcat("a", undefined)', "undefined")),
        *(('strcat("a", error)', "error"), ('join(",", "a", undefined, "b")', '"a,b"'), ('join("-", {1,2})', '"1-2"')),
        *(
            ('join({"a","b"})', '"ab"'),
            ("join(undefined)", "undefined"),
            ('join(",", error)', "error"),
            ('join("a")', '""'),
        ),
        *(('substr("abcdef", 2)', '"cdef"'), ('substr("abcdef", -4, 2)', '"cd"'), ('substr("abc", 1, -1)', '"b"')),
        *(('substr("abc", 1, 0)', '""'), ('substr("é", 0, 2)', '"é"'), ('substr("abc", 1.5)', "error")),
        *(("substr(undefined, 1)", "undefined"), ('toUpper("aé")', '"Aé"'), ("toLower(true)", '"true"')),
        *(('strcmp("a", "B")', "1"), ('stricmp("a", "B")', "-1"), ('stricmp("a", undefined)', "undefined")),
        *(
            ('size("é")', "2"),
            ("size({1,2})", "2"),
            ("size([a=1])", "1"),
            ("size(1)", "error"),
            ("size(undefined)", "undefined"),
        ),
        *(
            ('split("a, b,,c d")', '{ "a","b","","c","d" }'),
            ('split(" ")', "{  }"),
            ('split("a:b", ":")', '{ "a","b" }'),
        ),
        *(('split("ab", "")', '{ "ab" }'), ("split(1)", "error"), ('splitUserName("u@d@e")', '{ "u","d@e" }')),
        *(
            ('splitUserName("u")', '{ "u","" }'),
            ('splitSlotName("m")', '{ "","m" }'),
            ('splitSlotName("s@m")', '{ "s","m" }'),
        ),
    ],
    "versions": [
        *(('versioncmp("1.2", "1.10")', "-1"), ('versionGE("10", "9")', "true"), ('versionLT("1.0", "1.0.0")', "true")),
        *(
            ('versionEQ("a", "a")', "true"),
            ('versionLE("1", undefined)', "undefined"),
            ('versionGT("2", "10")', "false"),
        ),
        *(('versioncmp("1.01", "1.1")', "-1"), ('versioncmp("a1b", "a1c")', "-1"), ('versioncmp("01", "1")', "-1")),
        *(('version_in_range("2.1", "1.0", "2.0")', "false"), ('version_in_range("1.5", "1", "2")', "true")),
        ('version_in_range("1", undefined, "2")', "undefined"),
    ],
    "lists": [
        *(
            ('member("A", {"a"})', "true"),
            ("member(1, {undefined, 1.0})", "true"),
            ("member(undefined, {1})", "undefined"),
        ),
        *(("member({1}, {1})", "error"), ("member(1, 1)", "error"), ("identicalMember(1, {1.0})", "false")),
        *(("identicalMember(undefined, {undefined})", "true"), ('anyCompare("<", {1,5}, 3)', "true")),
        *(
            ('allCompare(">=", {1,5}, 1)', "true"),
            ('allCompare("<", {1,undefined}, 3)', "false"),
            ('anyCompare("?", {}, 1)', "error"),
        ),
        *(("sum({1, 2.5, true})", "4.5"), ("sum({})", "0"), ("sum({undefined, 2})", "2"), ('sum({"a"})', "error")),
        *(
            ("avg({1,2})", "1.5"),
            ("avg({})", "0"),
            ("min({3,1,2})", "1"),
            ("max({1,2.0})", "2.0"),
            ("min({})", "undefined"),
        ),
        *(("min({1,1.0})", "1.0"), ("max(1)", "error"), ("sum(undefined)", "undefined")),
    ],
    "patterns": [
        *(('regexp("^a.c$", "abc")', "true"), ('regexp("A", "a")', "false"), ('regexp("A", "a", "i")', "true")),
        *(('regexp("(", "a")', "error"), ('regexp("a", undefined)', "undefined"), ("regexp(1, 1)", "error")),
        *(('regexpMember("b", {"a", "bc"})', "true"), ('regexpMember("b", {"a", undefined})', "undefined")),
        *(
            ('regexpMember("b", {1})', "error"),
            ('regexps("a(.)c", "xabcx", "<\\\\1>")', '"<b>"'),
            ('regexps("a", "b", "c")', '""'),
        ),
        *(
            ('regexps("a", "b", "\\\\1")', '""'),
            ('regexps("a", "a", "\\\\1")', "error"),
            ('replace("a", "banana", "o")', '"bonana"'),
        ),
        *(('replaceall("an", "banana", "<\\\\0>")', '"b<an><an>a"'), ('replaceall("x*", "ab", "-")', "error")),
        *(
            ('regexps("b", "abb", "x", "g")', '"xx"'),
            ('regexps("b", "abb", "x", "fg")', '"axx"'),
            ('replace("(", "a", "b")', "error"),
        ),
    ],
    "stringlists": [
        *(('stringListSize("a, b,,c")', "3"), ('stringListSize("a;b", ";")', "2"), ('stringListSum("1,2.5")', "3.5")),
        *(
            ('stringListSum("")', "0.0"),
            ('stringListAvg("1,2")', "1"),
            ('stringListMin("3,1")', "1"),
            ('stringListMax("")', "undefined"),
        ),
        *(('stringListSum("a")', "error"), ("stringListSize(1)", "error"), ('stringListMember("a", "x a")', "true")),
        *(('stringListIMember("A", "a")', "true"), ("stringListMember(undefined, undefined)", "undefined")),
        *(('stringListSubsetMatch("a,b", "b,a,c")', "true"), ('stringListISubsetMatch("A", "a")', "true")),
        *(('stringListSubsetMatch("", "a")', "true"), ('stringListsIntersect("a,b", "b,c")', "true")),
        *(('stringListsIntersect("a", undefined)', "undefined"), ('stringList_regexpMember("^b", "a,bc")', "true")),
        *(('stringList_regexpMember("b", "")', "undefined"), ('stringList_regexpMember("B", "b", ",", "I")', "true")),
    ],
    "times": [
        *(
            ("time()", "1700000000"),
            ("currentTime() - absTime(1700000000)", "relTime(0.0)"),
            ("dayTime()", "relTime(80000.0)"),
        ),
        *(("timeZoneOffset()", "relTime(0.0)"), ("getYear(absTime(0))", "1970"), ("getMonth(absTime(0))", "1")),
        *(("getDayOfYear(absTime(86400))", "1"), ("getDayOfMonth(absTime(0))", "1"), ("getDayOfWeek(absTime(0))", "4")),
        *(("getHours(relTime(93784))", "2"), ("getDays(relTime(-93784))", "-1"), ("getMinutes(absTime(61))", "1")),
        *(("getSeconds(relTime(-61))", "-1"), ("getDays(absTime(0))", "error"), ("getYear(5)", "error")),
        *(
            ("splitTime(absTime(0, 60)).Minutes", "1"),
            ("splitTime(relTime(-90)).minutes", "-1"),
            ("splitTime(undefined)", "undefined"),
        ),
        *(('formatTime(1614834367, "%a %b %e %j %U %W %V %G %y %%")', '"Thu Mar  4 063 09 09 09 2021 21 %"'),),
        *(
            ("formatTime(0)", '"Thu Jan  1 00:00:00 1970"'),
            ('formatTime([Year = 2000; Month = 2; Day = 30], "%F %Q")', '"2000-02-30 %Q"'),
        ),
        *(
            ('formatTime(relTime(5), "%Y")', "error"),
            ("formatTime(0, 1)", "error"),
            ('formatTime(0, "%I %p %l")', '"12 AM 12"'),
        ),
        *(
            ("interval(93784)", '"1+02:03:04"'),
            ("interval(59)", '"59"'),
            ("interval(-90)", '"-1:30"'),
            ("interval({})", "error"),
        ),
    ],
    "contexts": [
        *(
            ("evalInEachContext(v, {a1, a2})", "{ 1,2 }"),
            ("evalInEachContext(n, {a1})", "{ 9 }"),
            ("countMatches(req, {a1, a2})", "1"),
        ),
        *(
            ("evalInEachContext(v + w, {a1, undefined, 5})", "{ 10,undefined,error }"),
            ("countMatches(req, undefined)", "0"),
        ),
        *(
            ("evalInEachContext(v, undefined)", "undefined"),
            ('countMatches(v, {[v=0],[v=0.5],[v="a"]})', "1"),
            ("countMatches(v, 1)", "error"),
        ),
    ],
    "shell": [
        *(
            ('envV1ToV2("B=2;A=x y")', "\"A=x' 'y B=2\""),
            ('envV1ToV2("A")', "error"),
            ('mergeEnvironment("A=1", undefined, "A=2 B=3")', '"A=2 B=3"'),
        ),
        *(
            ('mergeEnvironment("\'A=1")', "error"),
            ("mergeEnvironment()", '""'),
            ("argsToList(\"a 'b c' ''\")", '{ "a","b c","" }'),
        ),
        *(
            ('argsToList("a \'b", 1)', '{ "a","\'b" }'),
            ('argsToList("a", 3)', "error"),
            ('listToArgs({"a b", "it\'s", ""})', "\"a' 'b it''''s ''\""),
        ),
        *(('listToArgs({"a", "b"}, 1)', '"a b"'), ('listToArgs({"a b"}, 1)', "error"), ("listToArgs({1})", "error")),
    ],
    "users": [
        *(('userHome("root")', "undefined"), ('userHome("root", "/x")', '"/x"'), ("userHome(1)", "error")),
        *(('userMap("m", "u")', "undefined"), ('userMap("m", "u", "p", "d")', '"d"'), ('userMap(error, "u")', "error")),
    ],
}


@pytest.mark.parametrize(
    ("family", "expression", "wanted"),
    [(family, expression, wanted) for family, cases in CASES.items() for expression, wanted in cases],
)
def test_function(family: str, expression: str, wanted: str) -> None:
    assert value(expression, MY) == wanted


def test_every_function_has_a_case() -> None:
    text = " ".join(expression.lower() for cases in CASES.values() for expression, _ in cases)
    assert [name for name in TABLE if f"{name}(" not in text] == []


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_wrong_number_of_arguments_is_an_error(name: str) -> None:
    entry = TABLE[name]
    if entry.least > 0:
        assert value(f"{name}({', '.join(['1'] * (entry.least - 1))})") == "error"
    if entry.most < 100:
        assert value(f"{name}({', '.join(['1'] * (entry.most + 1))})") == "error"


def test_an_unknown_function_is_an_error_and_evaluates_nothing() -> None:
    assert value('nosuch(eval("1 +"))') == "error"


def test_gpus_of_a_machine_are_counted_for_a_job() -> None:
    machine = {"Gpus": "{ G1, G2 }", "G1": "[ Capability = 8.0 ]", "G2": "[ Capability = 7.5 ]"}
    job = {"RequireGPUs": 'Capability >= 7.9 && Owner == "alice"', "Owner": '"alice"', "RequestGPUs": "1"}
    assert value("countMatches(RequireGPUs, TARGET.Gpus) >= RequestGPUs", job, machine) == "true"
    assert value("countMatches(TARGET.RequireGPUs, Gpus)", machine, job) == "1"


def test_a_name_that_neither_ad_has_loses_the_list_during_a_match() -> None:
    machine = {"Gpus": "{ [Capability = 8.0] }"}
    assert value("evalInEachContext(Capability, TARGET.Gpus)", {}, machine) == "undefined"
    assert value("countMatches(Capability, Gpus) + a", {"a": "1"}, machine) == "undefined"
    assert value("b + a", {"b": "countMatches(Capability, Gpus)", "a": "1"}, machine) == "1"


def test_chance_depends_on_the_time_only() -> None:
    assert value("random(1000000)", now=1.0) == value("random(1000000)", now=1.0)
    assert value("random(1000000)", now=1.0) != value("random(1000000)", now=2.0)
    assert value("random(1000000) == random(1000000)") == "false"


def test_homes_are_told_when_that_is_allowed() -> None:
    allow_user_home(True)
    try:
        assert value('userHome("root")') == '"/root"'
        assert value('userHome("no such user")') == "undefined"
    finally:
        allow_user_home(False)
