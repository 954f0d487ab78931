"""The pool from Python: connect, submit, wait, ask.

    async with await Pool.connect() as pool:
        cluster = await pool.submit({"executable": "/bin/sim", "arguments": ["--seed", "$(seed)"], "items": seeds})
        async for result in pool.as_completed([cluster]):
            print(result.job, result.exit_code, result.wall)

`pool.client.sync` has the same without asyncio, `pool.client.executor` a `concurrent.futures` executor whose workers
are jobs. docs/python.md tells of all of it.

    Pool, Cluster, Job      the connection, and handles on what was submitted
    Result, Acted, Tally    how a job ended, what an action did, how many are in which state
    ClassAd, Expr           ads of jobs and machines, and expressions in them
    JobEvent, EventKind     what happens to jobs
    Description, describe   a description that was read, and reading one without submitting it
    Explanation             why a job waits
    PoolError               every error that people see; NoPool where no node answers
    DescriptionWarning      what there is to be said about a description

It speaks to one node and knows nothing of how a job is run. Names are loaded when they are first used, so
that importing the package costs nothing to a program that only wants one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.classad import ClassAd as ClassAd
    from pool.classad import Expr as Expr
    from pool.client.addresses import NoPool as NoPool
    from pool.client.descriptions import DescriptionWarning as DescriptionWarning
    from pool.client.descriptions import describe as describe
    from pool.client.handles import Cluster as Cluster
    from pool.client.handles import Job as Job
    from pool.client.pool import ActionResult as ActionResult
    from pool.client.pool import Pool as Pool
    from pool.client.results import Result as Result
    from pool.client.spooling import FetchResult as FetchResult
    from pool.client.tally import Tally as Tally
    from pool.client.why import Explanation as Explanation
    from pool.errors import PoolError as PoolError
    from pool.jobs.description import Description as Description
    from pool.jobs.events import EventKind as EventKind
    from pool.jobs.events import JobEvent as JobEvent

_MODULES = {
    "ActionResult": "pool.client.pool",
    "ClassAd": "pool.classad",
    "Cluster": "pool.client.handles",
    "Description": "pool.jobs.description",
    "DescriptionWarning": "pool.client.descriptions",
    "EventKind": "pool.jobs.events",
    "Explanation": "pool.client.why",
    "Expr": "pool.classad",
    "FetchResult": "pool.client.spooling",
    "Job": "pool.client.handles",
    "JobEvent": "pool.jobs.events",
    "NoPool": "pool.client.addresses",
    "Pool": "pool.client.pool",
    "PoolError": "pool.errors",
    "Result": "pool.client.results",
    "Tally": "pool.client.tally",
    "describe": "pool.client.descriptions",
}

__all__ = [
    "ActionResult",
    "ClassAd",
    "Cluster",
    "Description",
    "DescriptionWarning",
    "EventKind",
    "Explanation",
    "Expr",
    "FetchResult",
    "Job",
    "JobEvent",
    "NoPool",
    "Pool",
    "PoolError",
    "Result",
    "Tally",
    "describe",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
