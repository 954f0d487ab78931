"""Workloads of parallel jobs: traces in the Standard Workload Format, and the model of Lublin and Feitelson.

The format is that of the Parallel Workloads Archive (18 fields a line, `;` begins a comment). The model and its
parameters are those of Lublin and Feitelson, "The workload on parallel supercomputers: modeling the characteristics of
rigid jobs", JPDC 63(11), 2003, as the authors' lublin99.c has them for batch jobs, interactive jobs, or one stream.
"""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a workload; times in seconds.

    Attributes:
        number: its place in the workload.
        submitted: since the first job's submission.
        runtime: how long it computes.
        size: machines.
        estimate: what its user expected; None where the trace does not say.
        user: the user's name.
    """

    number: int
    submitted: float
    runtime: float
    size: int
    estimate: float | None = None
    user: str = "user"


def read_swf(path: Path, machines: int, most: int | None = None) -> list[TraceJob]:
    """The jobs of a trace that have run and fit on so many machines.

    A job that ran beyond its estimate counts as ended there, as the system that was traced ended it.

    Args:
        path: a file in the Standard Workload Format; `.gz` is unpacked.
        most: of the first so many jobs.
    """
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace")
    return parse_swf(text.splitlines(), machines, most)


def parse_swf(lines: Iterable[str], machines: int, most: int | None = None) -> list[TraceJob]:
    """The jobs of a trace's lines; see `read_swf`."""
    found: list[TraceJob] = []
    for line in lines:
        if line.startswith(";") or not line.strip():
            continue
        fields = line.split()
        submitted, runtime, size, asked, estimate = (float(fields[place]) for place in (1, 3, 4, 7, 8))
        size = asked if asked > 0 else size
        if runtime <= 0 or not 0 < size <= machines:
            continue
        user = fields[11] if len(fields) > 11 else "-1"
        runtime = min(runtime, estimate) if estimate > 0 else runtime
        found.append(TraceJob(0, submitted, runtime, int(size), estimate if estimate > 0 else None, f"user{user}"))
        if most is not None and len(found) >= most:
            break
    found.sort(key=lambda job: job.submitted)
    first = found[0].submitted if found else 0.0
    return [replace(job, number=number, submitted=job.submitted - first) for number, job in enumerate(found)]


def offered_load(jobs: Sequence[TraceJob], machines: int) -> float:
    """The work over what the machines could do until the last submission."""
    return sum(job.runtime * job.size for job in jobs) / (machines * max(job.submitted for job in jobs))


def scaled(jobs: Sequence[TraceJob], machines: int, load: float) -> list[TraceJob]:
    """The same jobs, submitted faster or slower so that they offer a load."""
    factor = offered_load(jobs, machines) / load
    return [replace(job, submitted=job.submitted * factor) for job in jobs]


@dataclass(frozen=True, slots=True)
class LublinParameters:
    """The model's parameters, named as in lublin99.c."""

    serial: float
    pow2: float
    u_low: float
    u_prob: float
    a1: float
    b1: float
    a2: float
    b2: float
    pa: float
    pb: float
    aarr: float
    barr: float
    anum: float
    bnum: float
    arar: float


BATCH = LublinParameters(
    *(0.2927, 0.6686, 1.2, 0.875, 6.57, 0.823, 639.1, 0.0156, -0.003, 0.6986, 6.0415, 0.8531, 6.1271, 5.2740, 1.0519)
)
INTERACTIVE = LublinParameters(
    *(0.1541, 0.625, 1.0, 0.705, 3.8351, 0.6605, 7.073, 0.6856, -0.0118, 0.9156, 6.5510, 0.6621, 8.9186, 3.6680, 0.9797)
)
ONE_STREAM = LublinParameters(
    *(0.244, 0.576, 0.8, 0.86, 4.2, 0.94, 312.0, 0.03, -0.0054, 0.78, 10.2303, 0.4871, 8.1737, 3.9631, 1.0225)
)
#: Exponents above these are drawn again: of a job's runtime, and of the time between two jobs.
LONGEST_RUN, LONGEST_GAP = 12.0, 13.0
#: Half hours of a day, and the hour at which the model's day begins.
BUCKETS, DAY_STARTS = 48, 11


def lublin(chance: random.Random, jobs: int, machines: int, model: LublinParameters = ONE_STREAM) -> list[TraceJob]:
    """Draw a workload from the model.

    Args:
        chance: the source of chance; equal seeds give equal workloads.
        machines: of the pool; the largest job needs all of them.
    """
    arrivals = _arrivals(chance, model)
    found = []
    for number in range(jobs):
        submitted = next(arrivals)
        size = _size(chance, machines, model)
        found.append(TraceJob(number, submitted, _runtime(chance, size, model), size))
    first = found[0].submitted if found else 0.0
    return [replace(job, submitted=job.submitted - first) for job in found]


def _size(chance: random.Random, machines: int, model: LublinParameters) -> int:
    u_high = math.log2(machines)
    u_medium = max(model.u_low, u_high - 2.5)
    drawn = chance.random()
    if drawn <= model.serial:
        return 1
    low, high = (model.u_low, u_medium) if chance.random() <= model.u_prob else (u_medium, u_high)
    exponent = chance.uniform(low, high)
    if drawn <= model.serial + model.pow2:
        exponent = float(round(exponent))
    return max(1, min(machines, round(float(2.0**exponent))))


def _runtime(chance: random.Random, size: int, model: LublinParameters) -> float:
    share = min(1.0, max(0.0, model.pa * size + model.pb))
    while True:
        first = chance.random() <= share
        exponent = chance.gammavariate(model.a1, model.b1) if first else chance.gammavariate(model.a2, model.b2)
        if exponent <= LONGEST_RUN:
            return max(1.0, float(round(math.exp(exponent))))


def _arrivals(chance: random.Random, model: LublinParameters) -> Iterator[float]:
    """Times of submission with the model's cycle of a day: points are drawn, and each half hour has its price."""
    weights = [0.0] * BUCKETS
    for place in range(BUCKETS):
        share = gamma_below(place + 0.5, model.anum, model.bnum) - gamma_below(place - 0.5, model.anum, model.bnum)
        weights[(place + 2 * DAY_STARTS) % BUCKETS] = share
    mean = sum(weights) / BUCKETS
    weights = [weight / mean for weight in weights]
    bucket, left = 2 * DAY_STARTS, weights[2 * DAY_STARTS]
    passed = 0.0
    while True:
        exponent = chance.gammavariate(model.aarr * model.arar, model.barr)
        while exponent > LONGEST_GAP:
            exponent = chance.gammavariate(model.aarr * model.arar, model.barr)
        points = math.exp(exponent) / (86400.0 / BUCKETS)
        while points > left:
            points -= left
            passed += 1.0
            bucket = (bucket + 1) % BUCKETS
            left = weights[bucket]
        left -= points
        yield (passed + 1.0 - left / weights[bucket]) * 86400.0 / BUCKETS


def gamma_below(value: float, shape: float, scale: float) -> float:
    """The distribution function of the gamma distribution: by its series (Abramowitz and Stegun 6.5.29)."""
    if value <= 0:
        return 0.0
    x = value / scale
    term = total = 1.0 / shape
    place = shape
    while term > total * 1e-14:
        place += 1.0
        term *= x / place
        total += term
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape))
