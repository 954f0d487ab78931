"""The pool from Python: connect, submit, wait, ask.

    async with await Pool.connect() as pool:
        cluster = await pool.submit(Path("sweep.sub"))
        for result in await cluster.wait():
            print(result.job, result.exit_code, result.wall)

It speaks to one node and knows nothing of how a job is run. Names are loaded when they are first used, so
that importing the package costs nothing to a program that only wants one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.client.addresses import NoPool as NoPool
    from pool.client.descriptions import DescriptionWarning as DescriptionWarning
    from pool.client.handles import Cluster as Cluster
    from pool.client.handles import Job as Job
    from pool.client.pool import Pool as Pool
    from pool.client.results import Result as Result

_HOMES = {
    "NoPool": "pool.client.addresses",
    "Cluster": "pool.client.handles",
    "DescriptionWarning": "pool.client.descriptions",
    "Job": "pool.client.handles",
    "Pool": "pool.client.pool",
    "Result": "pool.client.results",
}

__all__ = ["Cluster", "DescriptionWarning", "Job", "NoPool", "Pool", "Result"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
