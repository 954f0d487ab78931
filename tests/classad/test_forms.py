"""Ads as lines, as JSON, as XML, and back."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, ParseError, parse_ad
from pool.classad.jsonform import from_json
from pool.classad.xmlform import from_xml
from tests.classad.helpers import ad

SAMPLE = parse_ad(
    r'[Foo="x\"y\n<&>\\";r=1.5;i=-3;t=true;u=undefined;e=error;l={1,"a",a+1};n=[z=1;y="q"];x=a&&b<c;at=absTime("2021-03-04T05:06:07Z")]'
)


def test_long_form() -> None:
    job = ad({"b": "x is 1.0", "A": '"say \\"hi\\""', "c": "{ 1,2 }"})
    assert job.to_long() == 'A = "say \\"hi\\""\nb = x =?= 1.0\nc = { 1,2 }'
    assert ClassAd.from_long(job.to_long()).to_wire() == {"A": 'say "hi"', "b": ["x =?= 1.0"], "c": ["{ 1,2 }"]}
    assert ClassAd().to_long() == ""


def test_reading_lines() -> None:
    read = ClassAd.from_long('# a comment\n\n  A=1\r\nPath = "C:\\dir\\"\nB = "first" "rest is ignored"\na = 2\n')
    assert read.to_wire() == {"a": 2, "Path": "C:\\dir\\", "B": "first"}
    with pytest.raises(ParseError, match="line 2 of an ad is no"):
        ClassAd.from_long("A = 1\nnonsense")
    with pytest.raises(ParseError, match="line 1 of an ad, A: expected an operand"):
        ClassAd.from_long("A = )")


def test_json() -> None:
    assert SAMPLE.to_json() == (
        '{"e": "\\/Expr(error)\\/","i": -3,"l": [1,"a","\\/Expr(a + 1)\\/"],"n": {"y": "q","z": 1},"r": 1.5,'
        '"t": true,"u": null,'
        '"x": "\\/Expr(a && b < c)\\/","at": "\\/Expr(absTime(\\"2021-03-04T05:06:07-00:00\\"))\\/",'
        '"Foo": "x\\"y\\n<&>\\\\"}'
    )
    assert from_json(SAMPLE.to_json()).to_new() == SAMPLE.to_new()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "\\/Expr(1 +)\\/"}', '{"a":' + "[" * 5000, "{1: 2}"])
def test_what_is_no_json_ad(text: str) -> None:
    with pytest.raises(ParseError):
        from_json(text)


def test_a_json_string_that_only_looks_quoted_stays_a_string() -> None:
    assert from_json('{"a": "/Expr(1)/", "b": "x\\/y"}').to_wire() == {"a": "/Expr(1)/", "b": "x/y"}


def test_xml() -> None:
    assert SAMPLE.to_xml() == (
        '<c><a n="e"><er/></a><a n="i"><i>-3</i></a><a n="l"><l><i>1</i><s>a</s><e>a + 1</e></l></a>'
        '<a n="n"><c><a n="y"><s>q</s></a><a n="z"><i>1</i></a></c></a><a n="r"><r>1.500000000000000E+00</r></a>'
        '<a n="t"><b v="t"/></a><a n="u"><un/></a><a n="x"><e>a &amp;&amp; b &lt; c</e></a>'
        '<a n="at"><at>2021-03-04T05:06:07-00:00</at></a><a n="Foo"><s>x"y\\n&lt;&amp;&gt;\\\\</s></a></c>'
    )
    assert from_xml(SAMPLE.to_xml()).to_new() == SAMPLE.to_new()


def test_xml_with_spaces_and_a_header() -> None:
    header = '<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n'
    text = header + '<classads>\n<c>\n  <a n="A"> <i> 5 </i> </a>\n</c></classads>'
    assert from_xml(text).to_wire() == {"A": 5}


@pytest.mark.parametrize(
    "text", ["", "<c>", '<c><a n="x"></a></c>', '<c><a n="x"><i>q</i></a></c>', '<c><a n="x"><e>1 +</e></a></c>']
)
def test_what_is_no_xml_ad(text: str) -> None:
    with pytest.raises(ParseError):
        from_xml(text)


def test_a_line_read_again_is_the_same_attribute() -> None:
    text = 'First = 1\nTwice = First + 1\nTWICE = "no"\n# none\nText = "a"'
    first, again = ClassAd.from_long(text), ClassAd.from_long(text)
    assert list(first) == list(again) == ["First", "TWICE", "Text"]
    assert first.to_long() == again.to_long()
    first["First"] = 5
    assert again.value("First") == 1
