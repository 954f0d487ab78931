"""A share of `python -m tests.hostile --real`: hostile calls of every method of nodes that root runs for two users."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.own_pool("has ordinary users already")
def test_hostile_calls_of_a_real_node_give_nothing_and_change_nothing() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for users of its own")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mount namespaces")
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile", "--real", "--calls", "1", "--seed", "11"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.startswith("nothing went wrong\n"), done.stdout[-4000:] + done.stderr[-4000:]
    assert done.returncode == 0
