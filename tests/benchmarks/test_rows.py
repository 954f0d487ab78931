"""The harness itself: goals, ratios, the table, the command line. Its measurements are not judged here."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as program
from tests.benchmarks import figures, peers, processes
from tests.benchmarks.rows import BENCHMARKS, Benchmark, Effort, Goal, Row, benchmark, number, render


def test_a_goal_on_the_value() -> None:
    goal = Goal("at most", 40)
    assert Row("latency", 40, "ms", goal).met is True
    assert Row("latency", 41, "ms", goal).met is False
    assert goal.text("ms") == "at most 40 ms"


def test_a_goal_on_the_ratio_needs_a_peer() -> None:
    goal = Goal("at least", 2, "ratio")
    assert Row("rate", 1000, "jobs/s", goal, "peer", 500).met is True
    assert Row("rate", 999, "jobs/s", goal, "peer", 500).met is False
    assert Row("rate", 999, "jobs/s", goal).met is None
    assert Row("rate", 999, "jobs/s").met is None
    assert goal.text("jobs/s") == "at least 2 x"


def test_each_file_with_a_benchmark_is_in_the_list() -> None:
    files = Path(__file__).parent.glob("*.py")
    assert {path.stem for path in files if "\n@benchmark(" in path.read_text()} - {"test_rows"} == set(figures.MODULES)


def test_the_table_lines_up_and_shows_a_miss() -> None:
    rows = [Row("a", 1234.5, "ms", Goal("at most", 40)), Row("longer", 0.5, "s", note="how")]
    lines = render(rows).splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("NO")
    assert "1,234" in lines[1]
    assert "longer (how)" in lines[2]
    assert lines[0].index("unit") == lines[1].index("ms")


def test_numbers() -> None:
    assert [number(value) for value in (None, 0.123, 12.34, 1234.0)] == ["-", "0.12", "12.3", "1,234"]


def test_a_share_of_the_work() -> None:
    assert Effort(0.1).of(1000) == 100
    assert Effort(0.001).of(1000, least=50) == 50


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed: dict[str, Benchmark] = {}
    monkeypatch.setattr(program, "BENCHMARKS", listed)
    monkeypatch.setattr("tests.benchmarks.rows.BENCHMARKS", listed)

    @benchmark("good")
    async def good(effort: Effort) -> list[Row]:
        return [Row("one", 1.0, "s", Goal("at most", 2))]

    @benchmark("missed")
    async def missed(effort: Effort) -> list[Row]:
        return [Row("two", 3.0, "s", Goal("at most", 2))]

    @benchmark("broken")
    async def broken(effort: Effort) -> list[Row]:
        raise RuntimeError("no node")

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
        return program.main()

    assert list(listed) == ["good", "missed", "broken"]
    assert run("good", "--json") == 0
    assert json.loads(capsys.readouterr().out)["met"] is True
    assert run("good", "missed") == 1
    assert run("broken", "good") == 2
    assert run("nothing") == 2
    assert run("--list") == 0


def test_every_figure_has_a_benchmark_that_says_what_it_is() -> None:
    assert set(BENCHMARKS) >= {
        *("latency", "throughput", "bulk", "submits", "idlejobs", "runningjobs", "listings", "idle", "sensors")
    }
    assert all(function.__doc__ for function in BENCHMARKS.values())


def test_what_a_process_costs_is_read() -> None:
    resident, proportional = processes.memory(os.getpid())
    assert resident >= proportional > 1_000_000
    assert processes.anonymous(os.getpid()) > 1_000_000
    assert processes.processor_seconds(os.getpid()) > 0
    assert processes.children(os.getpid())[0] == os.getpid()
    assert processes.memory(2**22 + 1) == (0, 0)


async def test_xargs_is_timed() -> None:
    assert 0 < await peers.xargs(2, 4) < 5


async def test_a_peer_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    async with asyncio.timeout(5), peers.hyperqueue(2) as peer:
        assert peer is None
    assert "not installed" in capsys.readouterr().err
