"""`condor_submit_dag` without a node: its options, and the lines that tools read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.compat.submit_dag import submit_dag
from pool.errors import PoolError


def test_options_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.dag").write_text("JOB A {\nexecutable = /bin/true\n}\n")
    words = ["-force", "-maxjobs", "3", "-maxidle", "5", "-usedagdir", "-batch-name", "mine", "-append", "My.X = 17"]
    assert submit_dag([*words, "-no_submit", "it.dag"]) == 0
    shown = capsys.readouterr().out
    assert "Log of DAGMan debugging messages                   : it.dag.dagman.out\n" in shown
    assert submit_dag([]) == 1
    assert submit_dag(["-help"]) == 0
    assert submit_dag(["-notification", "Never", "-import_env", "-no_submit", "it.dag"]) == 0
    without_effect = [["-debug", "3"], ["-no_recurse"], ["-DoRecovery"], ["-suppress_notification"]]
    wrong = [["-maxjobs", "many"], ["-dagman", "x"], ["-xyz"], ["-notification", "always"]]
    for refused in [*wrong, *without_effect]:
        with pytest.raises(PoolError):
            submit_dag([*refused, "it.dag"])
