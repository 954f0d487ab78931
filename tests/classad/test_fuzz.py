"""A bounded, seeded share of the comparison with the reference engine, when it is installed.

It runs in a process of its own, because the reference is known to die of some expressions.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

INSTALLED = importlib.util.find_spec("classad2") is not None
SHARE = """
from tests.classad.fuzz import differences, load
print("\\n".join(line for seed in (20, 21, 22, 23) for line in differences(load(), seed, 250)))
"""


@pytest.mark.skipif(not INSTALLED, reason="the reference engine is not installed")
def test_the_engines_agree_on_random_expressions() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SHARE],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "TZ": "UTC"},
        check=False,
    )
    assert found.returncode == 0, found.stderr[-500:]
    assert found.stdout.strip() == ""
