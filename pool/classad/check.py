"""Cases of the language against expectations: `python -m pool.classad check FILE...`.

A file holds one JSON object on each line. It is an expression with the ads around it and its value, an ad with the
texts it must print as, the references of an expression, or a job and a machine with whether they match. The printed
table says for each kind how many cases hold, then the ids of those that do not.

Values are compared in a form that JSON can hold: {"t": type, "v": value}, reals as text with a relative tolerance
of 1e-12, lists and ads element by element.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pool.classad import references
from pool.classad.ad import ClassAd, parse_ad, scope_of
from pool.classad.errors import EvaluationFailed, ParseError
from pool.classad.expr import Expr, parse_expr
from pool.classad.longform import read_line
from pool.classad.match import rank, requirements_accept, symmetric_match
from pool.classad.printing import LONG, NEW, PRETTY
from pool.classad.scope import ListValue, Scope, valued
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime

Json = dict[str, Any]

ERROR_VALUE: Json = {"t": "error"}


@dataclass(slots=True)
class CaseTally:
    """How many cases of one kind were tried, and the ids of those that failed."""

    tried: int = 0
    failed: list[str] = field(default_factory=list)


def canonical(value: Any, depth: int = 0) -> Json:
    """A value from within an evaluation in the cases' form, lists and ads evaluated throughout."""
    kind = type(value)
    if value is UNDEFINED:
        return {"t": "undefined"}
    if value is ERROR or depth > 60:
        return ERROR_VALUE
    if kind is bool:
        return {"t": "bool", "v": value}
    if kind is int:
        return {"t": "int", "v": value}
    if kind is float:
        return {"t": "real", "v": repr(value)}
    if kind is str:
        return {"t": "string", "v": value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")}
    if kind is AbsTime:
        return {"t": "abstime", "v": value.seconds, "off": value.offset}
    if kind is RelTime:
        return {"t": "reltime", "v": repr(value.seconds)}
    if kind is ListValue:
        return {"t": "list", "v": [_part(value.at, index, depth) for index in range(len(value))]}
    assert isinstance(value, Scope)
    found = {name: _part(_attribute(value, held), key, depth) for name, key, held in value.ad.all()}
    return {"t": "ad", "v": found}


def _attribute(scope: Scope, held: Any) -> Any:
    return lambda key: valued(scope, key, held)


def _part(get: Any, key: Any, depth: int) -> Json:
    try:
        return canonical(get(key), depth + 1)
    except (EvaluationFailed, RecursionError):
        return ERROR_VALUE


def equal(wanted: Json, got: Json) -> bool:
    """Whether two values in the cases' form are the same."""
    kind = wanted.get("t")
    if kind != got.get("t"):
        return False
    if kind in ("undefined", "error", "parse_error", "deep"):
        return True
    a, b = wanted["v"], got["v"]
    if kind in ("real", "reltime"):
        return _close(float(a), float(b))
    if kind == "abstime":
        return bool(a == b and wanted.get("off", 0) == got.get("off", 0))
    if kind == "list":
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if kind == "ad":
        left, right = {k.lower(): v for k, v in a.items()}, {k.lower(): v for k, v in b.items()}
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    return type(a) is type(b) and bool(a == b)


def _close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)


def fits(shape: Json, got: Json) -> bool:
    """Whether a value has the wanted type, and lies in the wanted range if there is one."""
    if shape.get("t") != got.get("t"):
        return False
    if "min" in shape:
        return bool(shape["min"] <= float(got["v"]) <= shape.get("max", math.inf))
    return "v" not in shape or equal(shape, got)


def ad_of(attributes: Json | None, old: bool) -> ClassAd | None:
    """The ad of a case: names to expression texts."""
    if attributes is None:
        return None
    ad = ClassAd()
    for name, text in attributes.items():
        ad[name] = read_line(name, text, 1) if old else parse_expr(text)
    return ad


def value_of(case: Json, now: float) -> Json:
    """The value of a case's expression."""
    old = case.get("syntax") == "old"
    try:
        my, target = ad_of(case["my"], old), ad_of(case.get("target"), old)
        expression = parse_expr(case["expr"], "old" if old else "new")
    except ParseError:
        return {"t": "parse_error"}
    assert my is not None
    return evaluated(expression, my, target, now)


def evaluated(expression: Expr, my: ClassAd, target: ClassAd | None, now: float) -> Json:
    try:
        return canonical(expression.compile()(scope_of(my, target, now)))
    except (EvaluationFailed, RecursionError):
        return ERROR_VALUE


def _unparse(case: Json) -> bool:
    wanted = case["expect"]
    try:
        expression = parse_expr(case["expr"])
    except ParseError:
        return bool(wanted["t"] == "parse_error")
    if wanted["t"] != "unparse":
        return False
    forms = {"v": NEW, "pretty": PRETTY, "old": LONG}
    return all(expression.print(style) == wanted[key] for key, style in forms.items() if key in wanted)


def _ad_text(case: Json) -> bool:
    wanted = case["expect"]
    try:
        ad = parse_ad(case["text"])
    except ParseError:
        return bool(wanted["t"] == "parse_error")
    got = {
        "new": ad.to_new(),
        "long": ad.to_long() + "\n" if len(ad) else "",
        "json": ad.to_json(),
        "xml": ad.to_xml(),
        "pretty": ad.to_new(PRETTY),
    }
    return all(got[key] == wanted[key] for key in got if key in wanted)


def _references(case: Json) -> bool:
    wanted, my, expression = case["expect"], ad_of(case["my"], False), parse_expr(case["expr"])
    assert my is not None
    got = {
        "internal": references.internal(expression, my),
        "external": references.external(expression, my),
        "external_notfull": references.external(expression, my, full=False),
    }
    return all(
        sorted(name.lower() for name in wanted[key]) == sorted(name.lower() for name in found)
        for key, found in got.items()
        if key in wanted
    )


def _match(case: Json, now: float) -> bool:
    wanted = case["expect"]
    job, machine = ad_of(case["job"], False), ad_of(case["machine"], False)
    assert job is not None
    assert machine is not None
    flags = {
        "symmetric": symmetric_match(job, machine, now),
        "job_accepts_machine": requirements_accept(job, machine, now),
        "machine_accepts_job": requirements_accept(machine, job, now),
    }
    values = {
        "job_req": ("Requirements", job, machine),
        "machine_req": ("Requirements", machine, job),
        "job_rank": ("Rank", job, machine),
        "machine_rank": ("Rank", machine, job),
    }
    ranks = {"job_rank_float": rank(job, machine, now), "machine_rank_float": rank(machine, job, now)}
    return (
        all(wanted[key] == got for key, got in flags.items() if wanted.get(key) is not None)
        and all(
            equal(wanted[key], evaluated(parse_expr(name), my, target, now))
            for key, (name, my, target) in values.items()
            if wanted.get(key) is not None
        )
        and all(_close(float(wanted[key]), got) for key, got in ranks.items() if wanted.get(key) is not None)
    )


def holds(case: Json, now: float) -> bool:
    """Whether a case's expectation is met; where two versions of the reference differ, either is right."""
    kind = case["kind"]
    if kind == "unparse":
        return _unparse(case)
    if kind == "ad_text":
        return _ad_text(case)
    if kind == "refs":
        return _references(case)
    if kind == "match":
        return _match(case, now)
    got = value_of(case, now)
    if kind == "shape":
        return fits(case["expect"], got)
    return equal(case["expect"], got) or ("v24" in case and equal(case["v24"], got))


def check(lines: Iterable[str], now: float, tallies: dict[str, CaseTally]) -> None:
    """Try the cases of one file, adding to the tallies by kind."""
    for line in lines:
        if not line.strip():
            continue
        case = json.loads(line)
        tally = tallies.setdefault(case["kind"], CaseTally())
        tally.tried += 1
        if not holds(case, now):
            tally.failed.append(case["id"])


def table(tallies: dict[str, CaseTally]) -> str:
    """The tallies as text: a line for each kind, then the ids that failed."""
    rows = [
        f"{kind:<14} {tally.tried - len(tally.failed):>6} of {tally.tried:>6}"
        for kind, tally in sorted(tallies.items())
    ]
    failed = [f"  {kind}: {name}" for kind, tally in sorted(tallies.items()) for name in tally.failed]
    total = sum(tally.tried for tally in tallies.values())
    rows.append(f"{'all':<14} {total - len(failed):>6} of {total:>6}")
    return "\n".join(rows + (["not met:", *failed] if failed else [])) + "\n"
