"""The checker of cases, on cases of its own and on the corpus; on the larger one, too, where it is beside us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.classad.check import CaseTally, check, equal, fits, holds, table
from pool.classad.functions.users import allow_user_home
from tests.conftest import REPOSITORY

PLACES = (REPOSITORY / "tests" / "corpus", REPOSITORY.parent / "shared" / "corpus")
CORPORA = [place for place in PLACES if place.is_dir()]


@pytest.fixture
def utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    allow_user_home(True)
    yield
    allow_user_home(False)
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def case(**fields: Any) -> dict[str, Any]:
    return {"id": "own", "kind": "op", "my": {}, "target": None, **fields}


OWN = [
    case(expr="1 + 2", expect={"t": "int", "v": 3}),
    case(expr="1 +", expect={"t": "parse_error"}),
    case(expr="x", my={"x": "TARGET.y"}, target={"y": '"z"'}, expect={"t": "string", "v": "z"}),
    case(
        expr="{1.5, [a = nosuch]}",
        expect={"t": "list", "v": [{"t": "real", "v": "1.5"}, {"t": "ad", "v": {"A": {"t": "undefined"}}}]},
    ),
    case(expr="1 / 0", expect={"t": "int", "v": 1}, v24={"t": "error"}),
    case(expr='"a\\b"', syntax="old", expect={"t": "string", "v": "a\\b"}),
    case(kind="shape", expr="time()", expect={"t": "int", "min": 5}),
    case(kind="unparse", expr="a=?=b", expect={"t": "unparse", "v": "a is b", "old": "a =?= b", "pretty": "a is b"}),
    case(
        kind="ad_text", text="[a=1]", expect={"t": "ad_text", "new": "[ a = 1 ]", "long": "a = 1\n", "json": '{"a": 1}'}
    ),
    case(kind="refs", expr="a + b", my={"a": "1"}, expect={"t": "refs", "internal": ["A"], "external": ["b"]}),
    case(
        kind="match",
        job={"Requirements": "true", "Rank": "3"},
        machine={"Requirements": "TARGET.Rank == 3"},
        expect={"symmetric": True, "job_accepts_machine": True, "job_rank_float": "3"},
    ),
]


@pytest.mark.parametrize("own", OWN, ids=lambda own: str(own["kind"]))
def test_cases_hold(own: dict[str, Any]) -> None:
    assert holds(own, 10.0)


@pytest.mark.parametrize(
    "own",
    [
        case(expr="1 + 2", expect={"t": "real", "v": "3"}),
        case(expr="1 + 2", expect={"t": "parse_error"}),
        case(kind="shape", expr="time()", expect={"t": "int", "min": 5, "max": 6}),
        case(kind="unparse", expr="a", expect={"t": "parse_error"}),
        case(kind="ad_text", text="[a=1", expect={"t": "ad_text", "new": ""}),
    ],
)
def test_cases_that_do_not_hold(own: dict[str, Any]) -> None:
    assert not holds(own, 10.0)


def test_equality_of_values() -> None:
    assert equal({"t": "real", "v": "nan"}, {"t": "real", "v": "nan"})
    assert equal({"t": "real", "v": "1"}, {"t": "real", "v": "1.0000000000001"})
    assert not equal({"t": "int", "v": 1}, {"t": "int", "v": True})
    assert not equal({"t": "abstime", "v": 1}, {"t": "abstime", "v": 1, "off": 60})
    assert fits({"t": "int"}, {"t": "int", "v": 3})


def test_the_table_names_what_failed() -> None:
    tallies = {"op": CaseTally(3, ["op-1"]), "lex": CaseTally(2)}
    assert table(tallies).splitlines() == [
        "lex                 2 of      2",
        "op                  2 of      3",
        "all                 4 of      5",
        "not met:",
        "  op: op-1",
    ]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pool.classad", *arguments], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )


def test_the_program_reads_files_and_says_whether_all_held(tmp_path: Path) -> None:
    good, bad, broken = tmp_path / "good", tmp_path / "bad", tmp_path / "broken"
    good.write_text("".join(json.dumps(own) + "\n" for own in OWN) + "\n")
    bad.write_text(json.dumps(case(expr="1", expect={"t": "int", "v": 2})))
    broken.write_text("{")
    assert run("check", str(good)).returncode == 0
    found = run("check", str(good), str(bad))
    assert (found.returncode, found.stdout.splitlines()[-1]) == (1, "  op: own")
    assert run("check", str(broken)).returncode == 2
    missing = run("check", str(tmp_path / "none"))
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert run().returncode == 2


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.parent.name)
@pytest.mark.parametrize(("name", "least"), [("classad_cases.jsonl", 5000), ("match_cases.jsonl", 300)])
def test_the_corpus_holds(corpus: Path, name: str, least: int, utc: None) -> None:
    tallies: dict[str, CaseTally] = {}
    with (corpus / name).open(encoding="utf-8") as file:
        check(file, time.time(), tallies)
    assert sum(tally.tried for tally in tallies.values()) > least
    assert {kind: tally.failed for kind, tally in tallies.items() if tally.failed} == {}
