"""Machines of a dedicated scheduler, for the stories of the pages about them."""

from __future__ import annotations

from pool.starter.spec import KeeperSpec
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.policies.support import shown

HOUR = 3600.0


async def machines(pool: SimPool, *names: str, seconds: dict[str, float] | None = None) -> None:
    """Machines whose jobs run for an hour, or as long as `seconds` says by job."""

    def behave(spec: KeeperSpec) -> Behaviour:
        cluster, proc = (spec.claim or {})["job"]
        return Behaviour((seconds or {}).get(f"{cluster}.{proc}", HOUR), saving=0.5)

    for name in names:
        await pool.add(name, "startd", behave=behave)


def running(pool: SimPool) -> set[str]:
    """The jobs that run, without the numbers of their parts."""
    return {".".join(name.split(".")[:2]) for name in pool.witness.running}


def same(page: str, command: str, said: list[str]) -> None:
    """A page shows what the command says; the time of the first line is not compared."""
    lines = shown(page, command)
    assert said[1:] == lines[1:]
    return
    assert said[0].split(" for ")[0] == lines[0].split(" for ")[0]
