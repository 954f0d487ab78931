"""Reading traces, and the model of Lublin and Feitelson against its own moments."""

from __future__ import annotations

import gzip
import math
import random
import statistics
from pathlib import Path

import pytest

from pool.testing.dedicated import lublin, read_swf, scaled
from pool.testing.dedicated.workload import ONE_STREAM, gamma_below, offered_load

LINES = """; Version: 2
; comment

1 100 5 60 4 -1 -1 4 120 -1 1 7 1 -1 1 -1 -1 -1
2 90 5 500 2 -1 -1 -1 120 -1 1 8 1 -1 1 -1 -1 -1
3 110 5 -1 2 -1 -1 2 120 -1 0 8 1 -1 1 -1 -1 -1
4 120 5 30 64 -1 -1 64 120 -1 1 8 1 -1 1 -1 -1 -1
5 130 5 30 1 -1 -1 3 -1 -1 1 8 1 -1 1 -1 -1 -1
"""


def test_a_trace_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(LINES)
    (tmp_path / "a.swf.gz").write_bytes(gzip.compress(LINES.encode()))
    jobs = read_swf(tmp_path / "a.swf", 32)
    assert jobs == read_swf(tmp_path / "a.swf.gz", 32)
    assert [(job.submitted, job.runtime, job.size, job.estimate, job.user) for job in jobs] == [
        (0.0, 120.0, 2, 120.0, "user8"),  # ended at its estimate, as the traced system did
        (10.0, 60.0, 4, 120.0, "user7"),
        (40.0, 30.0, 3, None, "user8"),  # asked for more than it says that it used
    ]
    assert len(read_swf(tmp_path / "a.swf", 32, 1)) == 1


def test_the_distribution_function_of_gamma() -> None:
    # Of shape 1 it is that of the exponential distribution, of shape 2 with (1 + x) more.
    assert gamma_below(3.0, 1.0, 2.0) == pytest.approx(1 - math.exp(-1.5))
    assert gamma_below(3.0, 2.0, 1.0) == pytest.approx(1 - 4 * math.exp(-3.0))
    assert gamma_below(0.0, 2.0, 1.0) == 0.0


def test_the_model_has_its_moments() -> None:
    jobs = lublin(random.Random(1), 20_000, 256)
    serial = [job for job in jobs if job.size == 1]
    # One machine: drawn so, or a small exponent that rounds to one.
    assert ONE_STREAM.serial <= len(serial) / len(jobs) <= ONE_STREAM.serial + 0.06
    assert max(job.size for job in jobs) <= 256
    powers = [job for job in jobs if job.size & (job.size - 1) == 0]
    assert len(powers) / len(jobs) >= ONE_STREAM.serial + ONE_STREAM.pow2
    # Runtimes: the exponent's mean follows the share of the two gammas at that size.
    share = ONE_STREAM.pa + ONE_STREAM.pb
    mean = share * ONE_STREAM.a1 * ONE_STREAM.b1 + (1 - share) * ONE_STREAM.a2 * ONE_STREAM.b2
    drawn = statistics.fmean(math.log(job.runtime) for job in serial)
    assert drawn == pytest.approx(mean, abs=0.15)
    # Submissions: a daily cycle, in order.
    times = [job.submitted for job in jobs]
    assert times == sorted(times)
    by_hour = [0] * 24
    for at in times:
        by_hour[int(at / 3600) % 24] += 1
    assert max(by_hour) > 4 * min(by_hour)
    assert lublin(random.Random(1), 50, 256) == lublin(random.Random(1), 50, 256)


def test_a_load_is_set_by_scaling_submissions() -> None:
    jobs = lublin(random.Random(2), 500, 64)
    assert offered_load(scaled(jobs, 64, 0.7), 64) == pytest.approx(0.7)
