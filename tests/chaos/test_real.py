"""A short share of the rounds on real processes, and what is left of a run that is interrupted: nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.faults import NODES
from tests.chaos.inside import lacking
from tests.chaos.real_faults import RealKind, real_plan
from tests.conftest import REPOSITORY

#: Seconds for anything that is waited for: the machine may be busy.
PATIENCE = 300.0
COMMAND = [sys.executable, "-m", "tests.chaos"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """For logs, on a machine that can have a pool of its own."""
    if missing := lacking():
        pytest.skip(f"needs {missing}")
    return tmp_path


def test_a_seed_is_one_plan_and_all_kinds_of_faults_come() -> None:
    assert real_plan(5) == real_plan(5) != real_plan(6)
    assert {fault.kind for seed in range(30) for fault in real_plan(seed).faults} == set(RealKind)


def test_no_rule_is_broken(directory: Path) -> None:
    words = ["--seed", "4", "--rounds", "1", "--seconds", "2", "--directory", str(directory)]
    done = subprocess.run(
        [*COMMAND, *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = next(line for line in done.stdout.splitlines() if line.startswith("1 rounds, "))
    _, faults, jobs, copies, *_ = (int(word) for word in last.split() if word.isdigit())
    assert faults >= 3, done.stdout
    assert copies >= jobs >= 3, done.stdout


def test_an_interrupt_leaves_nothing(directory: Path) -> None:
    words = ["--rounds", "1000", "--directory", str(directory)]
    run = subprocess.Popen([*COMMAND, *words], cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + PATIENCE
    while not (directory / f"{NODES[0]}.log").exists():
        assert time.monotonic() < deadline
        assert run.poll() is None
    below = psutil.Process(run.pid).children(recursive=True)
    assert len(below) >= 4, "unshare, process 1, the rounds and a node"
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE) == 130
    assert psutil.wait_procs(below, timeout=PATIENCE)[1] == []
