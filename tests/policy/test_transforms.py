"""Job transforms: statements of HTCondor's language over ads."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy.transforms import read_transform

AD = {"Owner": "ann", "RequestMemory": 100, "RequestCpus": 2, "Rank": ["Memory * 2"], "Note": "old", "JobStatus": 1}


def transformed(*lines: str, ad: dict[str, Any] | None = None) -> dict[str, Any]:
    transform = read_transform("T", "\n".join(lines), ["owner"], lambda line: line.replace("$(SITE)", "here"))
    return transform.apply(dict(ad or AD), 1000.0)


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("SET Project 7", {"Project": 7}),
        ('set Project "$(SITE)"', {"Project": "here"}),
        ("SET requestmemory RequestCpus * 10", {"RequestMemory": ["RequestCpus * 10"]}),
        ("DEFAULT REQUESTMEMORY 1", {}),
        ("DEFAULT Project 1", {"Project": 1}),
        ("EVALSET Total RequestMemory * RequestCpus", {"Total": 200}),
        ('EVALSET Total strcat(Owner, "-", time())', {"Total": "ann-1000"}),
        ("EVALSET Total Nothing + 1", {"Total": ["undefined"]}),
        ("COPY Note Kept", {"Kept": "old"}),
        ("COPY Absent Kept", {}),
        ("RENAME Note Kept", {"Note": None, "Kept": "old"}),
        ("DELETE note", {"Note": None}),
        (r"COPY /^Request(.*)$/ Asked\1", {"AskedMemory": 100, "AskedCpus": 2}),
        (r"RENAME /^request(M.*|X.*)$/ Ask_\1", {"RequestMemory": None, "Ask_Memory": 100}),
        ("DELETE /.*/", {name: None for name in AD if name not in ("Owner", "JobStatus")}),
        ('SET Greeting "$(MY.Owner)/$(MY.Note) $(MY.Absent)"', {"Greeting": "ann/old "}),
        ("SET Rank ($(MY.Rank)) + 1", {"Rank": ["(Memory * 2) + 1"]}),
    ],
)
def test_a_statement_does_what_it_says(line: str, changed: dict[str, Any]) -> None:
    want = {name: value for name, value in (AD | changed).items() if value is not None}
    assert transformed(line) == want


def test_lines_come_one_after_the_other_and_only_for_jobs_that_it_is_for() -> None:
    said = ("NAME any words", "# a comment", "", "REQUIREMENTS RequestMemory > 50")
    lines = (*said, "SET A 1", "EVALSET B A + 1", "DELETE A")
    assert transformed(*lines) == AD | {"B": 2}
    small = AD | {"RequestMemory": 50}
    assert transformed(*lines, ad=small) == small
    assert transformed("REQUIREMENTS Absent > 50", "SET A 1") == AD


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("SET A 1 +",), "JOB_TRANSFORM_T: no expression in: SET A 1 +"),
        (("REQUIREMENTS (", "SET A 1"), "no expression in"),
        (("SET A",), "is not SET Name expression"),
        (("SET 1A 1",), "is not SET Name expression"),
        (("COPY A",), "is not COPY Name Other"),
        (("DELETE A B",), "is not DELETE Name"),
        (("COPY A 2b",), "no name of an attribute"),
        (("DELETE /(/",), "no pattern in"),
        (("COPY /a B",), "no pattern in"),
        (('SET Owner "root"',), "Owner is the schedd's to say"),
        (("RENAME Note owner",), "owner is the schedd's to say"),
        (("SET JobStatus 2",), "JobStatus is the schedd's to say"),
        (("IF x", "SET A 1"), "there is no statement IF here"),
        (("A = 1",), "there is no statement A here"),
        (("REQUIREMENTS true",), "changes nothing"),
        (("REQUIREMENTS true", "REQUIREMENTS true", "SET A 1"), "two REQUIREMENTS"),
    ],
)
def test_what_is_no_transform_is_named(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(PoolError, match="JOB_TRANSFORM_T") as caught:
        transformed(*lines)
    assert said in str(caught.value)


def test_a_jobs_own_text_that_makes_no_expression_is_refused() -> None:
    with pytest.raises(PoolError, match="the transform T gives Greeting no expression"):
        transformed('SET Greeting "$(MY.Note)"', ad=AD | {"Note": 'a"b'})
