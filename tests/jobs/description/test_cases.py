"""Twelve hundred small descriptions and the job ads expected of them.

The texts are ours; the expected values come from running the reference implementation (25.14.1) on them. The
first line of `cases.jsonl` holds a plain job, the files beside the description, the environment and texts
that groups begin with; each further line is [group, text, differences of each process from the plain job, or
null where the text is refused].
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pool.jobs.description import DescriptionError, read_description
from pool.jobs.description.check import FACTS, IWD, VOLATILE, Fixtures, long_form

LINES = Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines()
SETTING: dict[str, Any] = json.loads(LINES[0])
CASES: list[tuple[str, str, list[dict[str, Any]] | None]] = [tuple(json.loads(line)) for line in LINES[1:]]
PARTS = 12


def jobs(group: str, text: str) -> list[dict[str, str]] | None:
    text = f"executable = /bin/sleep\n{SETTING['before'][group]}{text}"
    try:
        description = read_description(
            text,
            iwd=IWD,
            environ=SETTING["environ"],
            user="alice",
            facts=FACTS,
            files=Fixtures(SETTING["files"]),
            cluster=1,
            check_files=False,
        )
    except DescriptionError:
        return None
    return [
        {name.lower(): value.replace(IWD, "$IWD") for name, value in long_form(draft, index).items()}
        for draft in description.clusters
        for index in range(draft.count)
    ]


def expected(changes: dict[str, Any]) -> dict[str, str]:
    kept = {name: value for name, value in SETTING["base"].items() if name not in changes.get("__absent__", ())}
    return kept | {name: value for name, value in changes.items() if name != "__absent__"}


@pytest.mark.parametrize("part", range(PARTS))
def test_descriptions_give_the_expected_job_ads(part: int) -> None:
    wrong = []
    for group, text, wanted in CASES[part::PARTS]:
        found = jobs(group, text)
        if wanted is not None and found is not None:
            ignored = VOLATILE | {"clusterid"}
            ads = [{name: value for name, value in job.items() if name not in ignored} for job in found]
            holds = ads == [expected(changes) for changes in wanted]
        else:
            holds = wanted is None and found is None
        if not holds:
            wrong.append(text)
    assert wrong == []
