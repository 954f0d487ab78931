"""A short run of the three real pools that lend to each other, while their processes are killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.flock_jobs import JobKind, draw_jobs
from tests.chaos.flock_pools import POOLS
from tests.chaos.inside import lacking
from tests.conftest import REPOSITORY

#: Seconds for the run: the machine may be very busy.
PATIENCE = 300.0
JOBS, KILLS = 24, 6


def test_a_seed_is_the_same_jobs_and_all_kinds_come() -> None:
    homes = {pool: Path("/nowhere") / pool for pool in POOLS}
    assert draw_jobs(5, 100, POOLS, homes) == draw_jobs(5, 100, POOLS, homes) != draw_jobs(6, 100, POOLS, homes)
    assert {job.kind for job in draw_jobs(5, JOBS, POOLS, homes)} == set(JobKind)
    assert {job.pool for job in draw_jobs(5, 100, POOLS, homes)} == set(POOLS)


def test_each_job_is_completed_once_and_nothing_is_left(tmp_path: Path) -> None:
    if missing := lacking():
        pytest.skip(f"needs {missing}")
    words = ["--jobs", str(JOBS), "--kills", str(KILLS), "--seed", "1", "--directory", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.real_flock", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^(\d+) jobs, (\d+) kills, \d+ copies, \d+ restored, (\d+) in other pools", done.stdout, re.M)
    assert found is not None, done.stdout
    jobs, kills, away = map(int, found.groups())
    assert jobs == JOBS
    assert kills >= 2, "nothing was tried"
    assert away >= 2, "nothing was lent"
