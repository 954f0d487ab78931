"""The bare programs beside which the pool is measured do what they say."""

from __future__ import annotations

import os
from pathlib import Path

from tests.benchmarks import floors, processes


def test_each_durable_message_is_answered() -> None:
    assert floors.durable_messages(21, 8) > 0


def test_a_python_with_the_libraries_is_larger_than_one_without() -> None:
    with floors.python_with("sys") as process:
        plain, _ = processes.memory(process)
    resident, proportional = floors.library_memory()
    assert resident > plain + 5_000_000
    assert 0 < proportional <= resident


def test_what_was_written_in_order_is_removed(tmp_path: Path) -> None:
    assert floors.written(tmp_path / "plain", 2) > 0
    assert os.listdir(tmp_path) == []
