"""The drop-ins' output beside that of HTCondor's own tools for the same ads (tests/compat/corpus)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pool.compat.entry import status
from tests.compat.cases import CORPUS, FILES

CASES = [json.loads(line) for line in (CORPUS / "cases.jsonl").read_text(encoding="latin-1").splitlines()]
#: The moment of a listing, and blanks behind its totals, which stand where the reference has further columns.
_MOMENT = re.compile(r" @ [0-9/]+ [0-9:]+$", re.MULTILINE)
_TOTALS = re.compile(r"^(Total for query.*?) +$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(CORPUS)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def comparable(text: str) -> str:
    return _TOTALS.sub(r"\1", _MOMENT.sub("", text))


def answer(case: dict[str, Any], capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[int, str]:
    code = status(case["tool"], [FILES[case["tool"]], case["file"], *case["arguments"]])
    return code, capfdbinary.readouterr().out.decode("latin-1")


def test_every_case_prints_the_same_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    wrong = []
    for case in CASES:
        code, text = answer(case, capfdbinary)
        if code != case["status"] or comparable(text) != comparable(case["output"]):
            wrong.append((case["tool"], case["file"], case["arguments"], case["status"], case["output"], code, text))
    assert wrong == [], f"{len(wrong)} of {len(CASES)}"
    assert len(CASES) > 700
