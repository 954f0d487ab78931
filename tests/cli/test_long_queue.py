"""A queue that is longer than what is laid out at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.cli import queue
from pool.cli.main import main
from tests.client.fakes import Fakes
from tests.client.serving import served


def test_it_is_listed_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queue, "AT_ONCE", 600)
    fakes = Fakes()
    for number in range(1700):
        fakes.schedd.add(1, number)
    with served(fakes, tmp_path) as node, pytest.raises(SystemExit) as ended:
        main(["q", "--address", node.address])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == [f"1.{number}" for number in range(1700)]
    assert sum("OWNER" in line for line in lines) == 1
    assert lines[-1].startswith("1,700 jobs: 1,700 idle")


def test_ids_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fakes = Fakes()
    fakes.schedd.add(1, 0)
    with served(fakes, tmp_path) as node, pytest.raises(SystemExit) as ended:
        main(["q", "1", "1.7", "9", "--address", node.address])
    assert not ended.value.code
    said = capsys.readouterr()
    assert "1 job: 1 idle" in said.out
    assert [line.split()[1] for line in said.err.splitlines()] == ["1.7", "9"]
    assert "`poolnode history 9` has it" in said.err
