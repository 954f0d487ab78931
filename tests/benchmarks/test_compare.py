"""Which figure counts as slower than before, judged from made-up turns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import compare

TOP = Path(__file__).resolve().parents[2]


def rows(
    *values: float, metric: str = "submit", unit: str = "ms", goal: str | None = None
) -> list[list[dict[str, Any]]]:
    return [[{"benchmark": "b", "metric": metric, "unit": unit, "goal": goal, "value": value}] for value in values]


@pytest.mark.parametrize(
    ("older", "newer", "verdict"),
    [
        ((10, 10, 10, 10, 10), (10, 10.2, 9.9, 10.1, 10), "same"),
        ((10, 10, 10, 10, 10), (12, 12, 12, 12, 12), "slower"),
        ((10, 10, 10, 10, 10), (8, 8, 8, 8, 8), "faster"),
        (
            (10, 20, 10, 20, 10),
            (12, 24, 12, 24, 12),
            "slower",
        ),  # the load doubles in every second turn: pairs see through it
        ((10, 30, 12, 25, 11), (12, 20, 30, 11, 28), "same"),  # noise alone
        ((10, 10, 10), (), "one side only"),
    ],
)
def test_a_time_is_slower_when_it_grew_by_more_than_the_noise(
    older: tuple[float, ...], newer: tuple[float, ...], verdict: str
) -> None:
    (figure,) = compare.figures(rows(*older), rows(*newer))
    assert figure.verdict == verdict


def test_of_a_rate_less_is_slower() -> None:
    (figure,) = compare.figures(rows(100, 100, 100, unit="jobs/s"), rows(80, 80, 80, unit="jobs/s"))
    assert figure.verdict == "slower"
    assert figure.change == pytest.approx(1.25)


def test_a_goal_says_which_side_is_good() -> None:
    (figure,) = compare.figures(rows(1, 1, unit="%", goal="at most 2 %"), rows(2, 2, unit="%", goal="at most 2 %"))
    assert figure.verdict == "slower"


def test_figures_that_only_one_commit_has_are_listed() -> None:
    compared = compare.figures(rows(1, metric="old"), rows(1, metric="new"))
    assert [(figure.metric, figure.verdict) for figure in compared] == [
        ("new", "one side only"),
        ("old", "one side only"),
    ]


def test_an_unknown_commit_is_one_line() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "latency", "--compare", "nosuchcommit"],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "cannot compare with nosuchcommit" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_side_whose_benchmark_fails_has_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "tests/benchmarks"
    package.mkdir(parents=True)
    (tmp_path / "tests/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import json, sys\n"
        "if sys.argv[1] == 'bad': sys.exit('no benchmark bad')\n"
        "print(json.dumps({'benchmark': sys.argv[1], 'metric': 'm', 'unit': 's', 'goal': None, 'value': 2.5}))\n"
        "sys.exit(2 if sys.argv[1] == 'broken' else 1)\n"
    )
    assert [row["value"] for row in compare.measure(tmp_path, ["good", "broken"], 0.1)] == [2.5]
    assert "broken has no figures there" in capsys.readouterr().err
    assert json.dumps(compare.measure(tmp_path, [], 1.0)) == "[]"
