"""Ads: attributes without regard to case, chains, and the wire."""

from __future__ import annotations

import pytest

from pool.classad import ERROR, UNDEFINED, AbsTime, ClassAd, Expr, ParseError, RelTime, literal, parse_ad, parse_expr
from tests.classad.expressions import MY
from tests.classad.helpers import ad, text_of


def test_names_are_found_in_any_case_and_kept_as_spelled() -> None:
    job = ClassAd({"RequestCpus": 4})
    job["requestcpus"] = 8
    assert job.value("REQUESTCPUS") == 8
    assert list(job) == ["requestcpus"]
    assert "requestCpus" in job
    assert 5 not in job
    other = ClassAd({"REQUESTCPUS": 1})
    assert list(other) == ["REQUESTCPUS"]
    assert list(ClassAd({"RequestCpus": 1})) == ["RequestCpus"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        *((True, "true"), (7, "7"), (2.5, "2.5"), ("a", '"a"'), (None, "undefined"), (UNDEFINED, "undefined")),
        *((ERROR, "error"), ([1, "a"], '{ 1,"a" }'), ({"x": 1}, "[ x = 1 ]"), (ClassAd({"x": [2]}), "[ x = { 2 } ]")),
        *((AbsTime(0, 60), 'absTime("1970-01-01T00:01:00+00:01")'), (RelTime(1.5), "relTime(1.5)")),
    ],
)
def test_python_values_have_counterparts(given: object, shown: str) -> None:
    holder = ClassAd({"X": given})
    assert text_of(holder["X"]) == shown
    assert text_of(ClassAd.from_wire(holder.to_wire()).eval("X")) == shown


@pytest.mark.parametrize("given", [2**63, b"bytes", object()])
def test_python_values_without_counterpart_are_refused(given: object) -> None:
    with pytest.raises(TypeError):
        literal(given)


def test_value_gives_the_default_for_what_cannot_be_used() -> None:
    job = ad({"A": "1 / 0", "B": "nosuch", "C": "2 + 3"})
    assert [job.value(name, 9) for name in "ABCD"] == [9, 9, 5, 9]
    assert job.eval("A") is ERROR
    assert job.eval("B") is UNDEFINED
    assert job.eval("D") is UNDEFINED


def test_a_process_ad_over_its_cluster() -> None:
    cluster = ad({"Cmd": '"/bin/true"', "Out": 'strcat("out.", ProcId)', "ProcId": "0"})
    proc = ClassAd({"procid": 3}, parent=cluster)
    assert proc.value("Out") == "out.3"
    assert cluster.value("Out") == "out.0"
    assert sorted(proc) == ["Cmd", "Out", "procid"]
    assert len(proc) == 3
    assert proc.own_to_wire() == {"procid": 3}
    assert proc.to_wire() == {"procid": 3, "Cmd": "/bin/true", "Out": ['strcat("out.",ProcId)']}
    del proc["ProcId"]
    assert proc.eval("ProcId") is UNDEFINED
    del proc["Cmd"]
    assert proc.get("Cmd") == literal(UNDEFINED)
    assert cluster.value("Cmd") == "/bin/true"
    merged = proc.merged()
    assert merged.parent is None
    assert len(merged) == 3


def test_copies_are_independent() -> None:
    first = ad({"A": "1"})
    second = first.copy()
    second["A"] = 2
    second.update({"B": 3})
    second.update(ad({"C": "A + B"}))
    assert first.value("A") == 1
    assert [second.value(name) for name in "ABC"] == [2, 3, 5]
    second.discard("B")
    second.discard("B")
    assert second.get("B") is None
    with pytest.raises(KeyError):
        del second["B"]
    with pytest.raises(KeyError):
        second["B"]


def test_set_expr_reads_the_long_form() -> None:
    job = ClassAd()
    job.set_expr("Path", r'"C:\dir"')
    job.set_expr("Requirements", 'TARGET.Arch =?= "X86_64"')
    assert job.value("Path") == "C:\\dir"
    assert job["Requirements"].text == 'TARGET.Arch =?= "X86_64"'
    with pytest.raises(ParseError, match="cannot set Rank: expected an operand"):
        job.set_expr("Rank", "1 +")


def test_the_wire_carries_scalars_and_texts() -> None:
    job = ad({**MY, "Weird": r'strcat("ends\\", "x")', "Nan": 'real("nan")'})
    wire = job.to_wire()
    assert wire["a"] == 7
    assert wire["b"] == ["a + 2.5"]
    assert wire["u"] == ["undefined"]
    again = ClassAd.from_wire(wire)
    assert again.to_wire() == wire
    assert again.value("Weird") == "ends\\x"
    assert {name: text_of(again.eval(name)) for name in job} == {name: text_of(job.eval(name)) for name in job}


@pytest.mark.parametrize("sent", [["(("], [], ["1", "2"], [5], b"x", 2**64, {"a": b"x"}, None])
def test_what_a_stranger_sends_never_raises(sent: object) -> None:
    job = ClassAd.from_wire({"X": sent})
    job.eval("X")
    assert isinstance(job["X"], Expr)
    ClassAd.from_wire(job.to_wire())


def test_a_name_that_is_no_string_is_refused() -> None:
    with pytest.raises(ParseError):
        ClassAd.from_wire({5: 1})  # type: ignore[dict-item]


def test_expressions_are_shared_and_compare_by_text() -> None:
    assert parse_expr("a  +  b") == parse_expr("a+b")
    assert len({parse_expr("a  +  b"), parse_expr("a+b")}) == 1
    wire = {"X": ["Memory > 1024 * 3"]}
    assert ClassAd.from_wire(wire)["X"] is ClassAd.from_wire(wire)["x"]


def test_an_ad_is_never_false_and_prints_itself() -> None:
    empty = ClassAd()
    assert empty
    assert str(empty) == "[  ]"
    assert str(parse_ad("[b=1;A=x]")) == "[ A = x; b = 1 ]"


def test_scalars_compare_and_convert_as_python_values() -> None:
    ad = ClassAd.from_wire({"ExitCode": 0, "Owner": "ann", "Share": 2.5, "Ok": True, "Sum": ["1 + 1"]})
    assert ad["ExitCode"] == 0
    assert ad["ExitCode"] != 1
    assert ad["ExitCode"] != "0"
    assert ad["Owner"] == "ann"
    assert ad["Ok"] == True  # noqa: E712 - the comparison is what is shown
    assert 2 < ad["Share"] <= 2.5
    assert ad["ExitCode"] < ad["Share"]
    assert (int(ad["Share"]), float(ad["ExitCode"])) == (2, 0.0)
    words: dict[object, str] = {0: "zero"}
    assert words[ad["ExitCode"]] == "zero"
    assert ad["Sum"] != 2
    with pytest.raises(TypeError, match=r"1 \+ 1 is an expression"):
        int(ad["Sum"])
