"""All benchmarks: importing this enters them into the list, in the order in which they run."""

from __future__ import annotations

from tests.benchmarks import (
    accounts,
    checkpoint,
    fairness,
    idle,
    language,
    large_queue,
    latency,
    listings,
    mapping,
    memory,
    moving,
    negotiation,
    owner,
    pipes,
    remoteio,
    sets,
    spread,
    starts,
    submits,
    throughput,
)

__all__ = [
    "remoteio",
    "checkpoint",
    "accounts",
    "fairness",
    "idle",
    "language",
    "large_queue",
    "latency",
    "listings",
    "mapping",
    "memory",
    "moving",
    "negotiation",
    "owner",
    "pipes",
    "sets",
    "spread",
    "starts",
    "submits",
    "throughput",
]
