"""The differences of a large cluster's jobs in lists that fit into a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pool.policy.packed import pack

#: Jobs and bytes in one list. One job's differences may be larger; then it is alone.
MOST_JOBS, MOST_BYTES = 1000, 512 * 1024


#: The most that goes in one call: so many jobs, and so many bytes, as estimated from a few of them.
ONE_CALL_JOBS, ONE_CALL_BYTES = 20_000, 4 << 20
LOOKED_AT = 64


def is_large(deltas: Sequence[dict[str, Any] | None]) -> bool:
    """Whether these go in batches rather than in one call."""
    if len(deltas) > ONE_CALL_JOBS:
        return True
    some = deltas[:: max(1, len(deltas) // LOOKED_AT)]
    return sum(len(pack(delta)) for delta in some) * len(deltas) > ONE_CALL_BYTES * max(1, len(some))


def batches(deltas: Sequence[dict[str, Any] | None]) -> Iterator[list[dict[str, Any] | None]]:
    """Them all, in order."""
    batch: list[dict[str, Any] | None] = []
    size = 0
    for delta in deltas:
        more = len(pack(delta)) if delta else 1
        if batch and (len(batch) >= MOST_JOBS or size + more > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(delta)
        size += more
    if batch:
        yield batch
