"""A join token comes by file, standard input and environment, and does not stay where others read it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pool.cli.join_token import VARIABLE, read_join
from pool.cli.selection import UsageProblem
from tests.conftest import REPOSITORY

TOKEN = "pooljoin-" + "Zm9vYmFy" * 20


def test_where_a_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert read_join(str(tmp_path / "token"), {}) == TOKEN
    monkeypatch.setattr(sys, "stdin", io.StringIO(TOKEN + "\n"))
    assert read_join("-", {}) == TOKEN
    environ = {VARIABLE: TOKEN}
    assert read_join(None, environ) == TOKEN
    assert environ == {}, "no child process inherits it"
    assert read_join(None, {VARIABLE: str(tmp_path / "token")}) == TOKEN
    assert read_join(None, {}) is None
    with pytest.raises(UsageProblem, match="cannot read a token there: no such file"):
        read_join(str(tmp_path / "none"), {})


def test_a_token_that_is_an_argument_all_the_same_is_overwritten_at_once() -> None:
    program = (
        "import os, sys; from pool.cli.join_token import read_join; "
        "assert read_join(sys.argv[1], {}) == sys.argv[1]; print(open('/proc/self/cmdline').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, TOKEN], capture_output=True, text=True, cwd=REPOSITORY, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout
    assert "x" * len(TOKEN) in done.stdout
